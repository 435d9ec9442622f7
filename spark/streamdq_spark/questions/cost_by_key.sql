-- cost_by_key: what did the keys cost?
-- One row for each of the 20 keys of a topic and group that took most time, and one for all its others together. Jobs without
-- a key are in none.
--
--   topic            text
--   group            text
--   rank             integer   null: the others
--   key              text      null: the others
--   keys             integer   how many keys the row is of
--   jobs             integer   and what follows, as in cost_by_topic
--   attempts         integer
--   failed           integer
--   reclaimed        integer
--   worker_ms        integer
--   share            number    of the time of all jobs of the topic and group, also of those without a key
--   failed_ms        integer
--   failed_share     number
--   reclaimed_ms     integer
--   reclaimed_share  number
--   put_back_ms      integer
--   body_bytes       integer
--   read_bytes       integer
WITH whole AS (
    SELECT topic, "group", key, jobs, attempts, failed, reclaimed, worker_ms, failed_ms, reclaimed_ms, put_back_ms, body_bytes,
        read_bytes, sum(worker_ms) OVER (PARTITION BY topic, "group") AS everything
    FROM jobs
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY topic, "group" ORDER BY worker_ms DESC, key) AS place FROM whole WHERE key IS NOT NULL
), named AS (
    SELECT topic, "group", CASE WHEN place <= 20 THEN place END AS rank, CASE WHEN place <= 20 THEN key END AS key, everything,
        count(*) AS keys, sum(jobs) AS jobs, sum(attempts) AS attempts, sum(failed) AS failed, sum(reclaimed) AS reclaimed,
        sum(worker_ms) AS worker_ms, sum(failed_ms) AS failed_ms, sum(reclaimed_ms) AS reclaimed_ms,
        sum(put_back_ms) AS put_back_ms, sum(body_bytes) AS body_bytes, sum(read_bytes) AS read_bytes
    FROM ranked
    GROUP BY topic, "group", CASE WHEN place <= 20 THEN place END, CASE WHEN place <= 20 THEN key END, everything
)
SELECT topic, "group", rank, key, keys, jobs, attempts, failed, reclaimed, worker_ms, share(worker_ms, everything) AS share, failed_ms,
    share(failed_ms, worker_ms) AS failed_share, reclaimed_ms, share(reclaimed_ms, worker_ms) AS reclaimed_share, put_back_ms,
    body_bytes, read_bytes
FROM named
