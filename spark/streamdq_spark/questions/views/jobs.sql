-- jobs: the lives of jobs, added up by topic, group and key (null: none). An id may be used again once its job has ended.
--
--   topic            text
--   group            text
--   key              text
--   jobs             integer   lives
--   attempts         integer   and failed, reclaimed, released: how many ended so
--   failed           integer
--   reclaimed        integer
--   released         integer
--   worker_ms        integer   how long attempts ran, also those that did not count
--   failed_ms        integer   the part of it in attempts that failed
--   reclaimed_ms     integer   in those that were taken over
--   put_back_ms      integer   in those that were handed back or put off
--   body_bytes       integer
--   read_bytes       integer   once for each claim
--   jobs_done_again  integer   lives that were done more than once
--   done_again       integer   ends as done beyond the first of the same life
--   jobs_reclaimed   integer
SELECT topic, "group", key, count(*) AS jobs, sum(attempts) AS attempts, sum(failed) AS failed, sum(reclaimed) AS reclaimed,
    sum(released) AS released, sum(worker_ms) AS worker_ms, sum(failed_ms) AS failed_ms, sum(reclaimed_ms) AS reclaimed_ms,
    sum(put_back_ms) AS put_back_ms, sum(body_bytes) AS body_bytes, sum(read_bytes) AS read_bytes,
    count(*) FILTER (WHERE done > 1) AS jobs_done_again, sum(greatest(done - 1, 0)) AS done_again,
    count(*) FILTER (WHERE reclaimed > 0) AS jobs_reclaimed
FROM (
    SELECT topic, "group", max(key) AS key, count(*) FILTER (WHERE is_attempt) AS attempts,
        count(*) FILTER (WHERE event = 'done') AS done,
        count(*) FILTER (WHERE has_failed) AS failed, count(*) FILTER (WHERE event = 'reclaimed') AS reclaimed,
        count(*) FILTER (WHERE event = 'released' AND error IS NULL) AS released,
        coalesce(sum(CASE WHEN is_attempt OR event IN ('reclaimed', 'released') THEN ran_ms END), 0) AS worker_ms,
        coalesce(sum(CASE WHEN has_failed THEN ran_ms END), 0) AS failed_ms,
        coalesce(sum(CASE WHEN event = 'reclaimed' THEN ran_ms END), 0) AS reclaimed_ms,
        coalesce(sum(CASE WHEN event = 'released' THEN ran_ms END), 0) AS put_back_ms,
        coalesce(max(body_bytes), 0) AS body_bytes,
        coalesce(sum(CASE WHEN is_attempt OR event IN ('reclaimed', 'released') THEN body_bytes END), 0) AS read_bytes
    FROM (  -- shuffled before they are added up, as hardly any two events are of one life
        SELECT /*+ REPARTITION(id) */ topic, "group", id, created, key, event, error, body_bytes, is_attempt, has_failed, ran_ms
        FROM asked
    ) AS apart
    GROUP BY created, id, topic, "group"
) AS lives
GROUP BY topic, "group", key
