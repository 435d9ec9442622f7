-- cost_by_topic: what did it cost, and how much of that was wasted?
-- One row for each topic and group.
--
--   topic            text
--   group            text
--   jobs             integer
--   attempts         integer
--   failed           integer
--   reclaimed        integer
--   worker_ms        integer   how long handlers ran, or held their place, added up. An attempt without a start, or with one
--                              after its end, adds nothing
--   share            number    of the worker_ms of all topics
--   failed_ms        integer   the part of it in attempts that failed
--   failed_share     number
--   reclaimed_ms     integer   in those that were taken over, until that was noticed
--   reclaimed_share  number
--   put_back_ms      integer   in those that were handed back or snoozed
--   body_bytes       integer   the bodies of the jobs, each once
--   read_bytes       integer   once for each time that it was claimed
WITH queues AS (
    SELECT topic, "group", sum(jobs) AS jobs, sum(attempts) AS attempts, sum(failed) AS failed, sum(reclaimed) AS reclaimed,
        sum(worker_ms) AS worker_ms, sum(failed_ms) AS failed_ms, sum(reclaimed_ms) AS reclaimed_ms,
        sum(put_back_ms) AS put_back_ms, sum(body_bytes) AS body_bytes, sum(read_bytes) AS read_bytes
    FROM jobs
    GROUP BY topic, "group"
)
SELECT topic, "group", jobs, attempts, failed, reclaimed, worker_ms, share(worker_ms, sum(worker_ms) OVER ()) AS share, failed_ms,
    share(failed_ms, worker_ms) AS failed_share, reclaimed_ms, share(reclaimed_ms, worker_ms) AS reclaimed_share, put_back_ms,
    body_bytes, read_bytes
FROM queues
