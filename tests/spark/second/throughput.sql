-- KEY topic, group, hour
WITH minutes AS (
    SELECT topic, "group", hour_of(finished) AS hour, finished // 60000 AS minute,
        CASE WHEN event = 'released' AND error IS NOT NULL THEN 'snoozed' ELSE event END AS kind,
        count(*) AS n, sum(body_bytes) AS bytes
    FROM asked
    GROUP BY ALL
), by_hour AS (
    SELECT topic, "group", hour, kind, sum(n) AS n, max(n) AS peak, sum(bytes) AS bytes FROM minutes GROUP BY ALL
)
SELECT topic, "group", hour,
    coalesce(sum(n) FILTER (kind = 'done'), 0) AS done, coalesce(sum(n) FILTER (kind = 'retry'), 0) AS retry,
    coalesce(sum(n) FILTER (kind = 'dead'), 0) AS dead, coalesce(sum(n) FILTER (kind = 'released'), 0) AS released,
    coalesce(sum(n) FILTER (kind = 'reclaimed'), 0) AS reclaimed, coalesce(sum(n) FILTER (kind = 'cancelled'), 0) AS cancelled,
    coalesce(sum(n) FILTER (kind = 'expired'), 0) AS expired, coalesce(sum(n) FILTER (kind = 'kicked'), 0) AS kicked,
    coalesce(sum(n) FILTER (kind = 'snoozed'), 0) AS snoozed,
    coalesce(max(peak) FILTER (kind = 'done'), 0) AS peak_done_per_minute, coalesce(sum(bytes) FILTER (kind = 'done'), 0) AS done_bytes
FROM by_hour
GROUP BY ALL
