-- lives: one row for each life of a job in a group. An id may be used again once its job has ended.
--
--   topic         text
--   group         text
--   id            text
--   created       integer   ms since 1970
--   key           text
--   attempts      integer   and done, failed, reclaimed, released: how many ended so
--   worker_ms     integer   how long attempts ran, also those that did not count
--   failed_ms     integer   the part of it in attempts that failed
--   reclaimed_ms  integer   in those that were taken over
--   put_back_ms   integer   in those that were handed back or put off
--   body_bytes    integer
--   read_bytes    integer   once for each claim
--   done_at       integer   ms since 1970; null: it is not done
--   first_due     integer   of the first attempt; null: it was not seen
SELECT topic, "group", id, created, max(key) AS key,
    count(*) FILTER (WHERE is_attempt) AS attempts, count(*) FILTER (WHERE event = 'done') AS done,
    count(*) FILTER (WHERE has_failed) AS failed, count(*) FILTER (WHERE event = 'reclaimed') AS reclaimed,
    count(*) FILTER (WHERE event = 'released' AND error IS NULL) AS released,
    coalesce(sum(CASE WHEN is_attempt OR event IN ('reclaimed', 'released') THEN ran_ms END), 0) AS worker_ms,
    coalesce(sum(CASE WHEN has_failed THEN ran_ms END), 0) AS failed_ms,
    coalesce(sum(CASE WHEN event = 'reclaimed' THEN ran_ms END), 0) AS reclaimed_ms,
    coalesce(sum(CASE WHEN event = 'released' THEN ran_ms END), 0) AS put_back_ms,
    coalesce(max(body_bytes), 0) AS body_bytes,
    coalesce(sum(CASE WHEN is_attempt OR event IN ('reclaimed', 'released') THEN body_bytes END), 0) AS read_bytes,
    max(CASE WHEN event = 'done' THEN finished END) AS done_at,
    min(CASE WHEN event <> 'kicked' AND attempt <= 1 THEN due END) AS first_due
FROM (
    -- Spark shuffles the events before it adds them up, as hardly any two are of one life. To DuckDB it is a comment.
    SELECT /*+ REPARTITION(id) */ topic, "group", id, created, key, event, error, attempt, due, finished, body_bytes, is_attempt,
        has_failed, ran_ms
    FROM asked
) AS apart
GROUP BY created, id, topic, "group"
