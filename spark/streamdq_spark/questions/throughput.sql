-- throughput: how much was done, and what else happened?
-- One row for each topic, group and hour. Day: hour.
--
--   topic                 text
--   group                 text
--   hour                  time
--   done                  integer   how many ended so
--   retry                 integer
--   dead                  integer
--   released              integer
--   reclaimed             integer
--   cancelled             integer
--   expired               integer
--   kicked                integer
--   snoozed               integer   put off by their handler; not counted as released
--   peak_done_per_minute  integer   the most jobs done in one minute of the hour
--   done_bytes            integer   the size of the bodies of the jobs done
WITH minutes AS (
    SELECT topic, "group", hour, floor(finished / 60000e0) AS minute,
        CASE WHEN event = 'released' AND error IS NOT NULL THEN 'snoozed' ELSE event END AS kind,
        count(*) AS n, sum(body_bytes) AS bytes
    FROM asked
    GROUP BY topic, "group", hour, floor(finished / 60000e0),
        CASE WHEN event = 'released' AND error IS NOT NULL THEN 'snoozed' ELSE event END
)
SELECT topic, "group", hour * 3600000 AS hour,
    coalesce(sum(n) FILTER (WHERE kind = 'done'), 0) AS done, coalesce(sum(n) FILTER (WHERE kind = 'retry'), 0) AS retry,
    coalesce(sum(n) FILTER (WHERE kind = 'dead'), 0) AS dead, coalesce(sum(n) FILTER (WHERE kind = 'released'), 0) AS released,
    coalesce(sum(n) FILTER (WHERE kind = 'reclaimed'), 0) AS reclaimed,
    coalesce(sum(n) FILTER (WHERE kind = 'cancelled'), 0) AS cancelled,
    coalesce(sum(n) FILTER (WHERE kind = 'expired'), 0) AS expired, coalesce(sum(n) FILTER (WHERE kind = 'kicked'), 0) AS kicked,
    coalesce(sum(n) FILTER (WHERE kind = 'snoozed'), 0) AS snoozed,
    coalesce(max(n) FILTER (WHERE kind = 'done'), 0) AS peak_done_per_minute,
    coalesce(sum(bytes) FILTER (WHERE kind = 'done'), 0) AS done_bytes
FROM minutes
GROUP BY topic, "group", hour
