-- retries: which step of the retry schedule helps?
-- One row for each topic, group and step; step 0 are the attempts before any step was used.
--
--   topic          text
--   group          text
--   step           integer
--   wait_ms        number    the median wait that led to the step; null for step 0, and where it was not seen. The delay of a
--                            Retry(delay=…) leads to no step
--   attempts       integer   that came to an end
--   done           integer
--   failed         integer
--   dead           integer
--   lost           integer   taken over from a consumer that had gone
--   success_rate   number    done over attempts
--   share_of_done  number    of all that was done, the part at this step
--   done_so_far    number    and up to it
WITH steps AS (
    SELECT topic, "group", step, count(*) FILTER (WHERE is_attempt) AS attempts, count(*) FILTER (WHERE event = 'done') AS done,
        count(*) FILTER (WHERE has_failed) AS failed, count(*) FILTER (WHERE event = 'dead') AS dead,
        count(*) FILTER (WHERE event = 'reclaimed') AS lost
    FROM asked
    WHERE step IS NOT NULL AND (is_attempt OR event = 'reclaimed')
    GROUP BY topic, "group", step
), added AS (
    SELECT topic, "group", step, attempts, done, failed, dead, lost, sum(done) OVER (PARTITION BY topic, "group") AS all_done,
        sum(done) OVER (PARTITION BY topic, "group" ORDER BY step ROWS UNBOUNDED PRECEDING) AS so_far
    FROM steps
), waits AS (
    SELECT topic, "group", step, percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_ms) AS wait_ms
    FROM retry_waits
    WHERE by_schedule
    GROUP BY topic, "group", step
)
SELECT a.topic, a."group", a.step, wait_ms, attempts, done, failed, dead, lost, share(done, attempts) AS success_rate,
    share(done, all_done) AS share_of_done, share(so_far, all_done) AS done_so_far
FROM added a
LEFT JOIN waits w ON w.topic = a.topic AND w."group" IS NOT DISTINCT FROM a."group" AND w.step = a.step
