-- enqueued_later: of what was due in the last 14 days, the share that was not enqueued yet, or had not failed before, when it was
-- still as long until the middle of a coming hour as it is now.
--
--   topic   text
--   hour    integer   a coming one
--   part    number
WITH ahead AS (
    SELECT topic, value AS ahead_ms, n FROM hour_values WHERE measure = 'ahead' AND :last_hour - hour < 336
    UNION ALL
    SELECT topic, wait_ms, n FROM lately_waited
), coming_hours AS (
    SELECT explode(sequence(CAST(:now_hour AS BIGINT), CAST(:now_hour + 23 AS BIGINT))) AS hour
), until AS (
    SELECT hour, greatest(hour * 3600000 + 1800000 - :now_ms, 0) AS until_ms FROM coming_hours
), topics AS (
    SELECT topic, sum(n) AS n FROM ahead GROUP BY topic
)
SELECT t.topic, u.hour, coalesce(sum(a.n), 0) / max(t.n) AS part
FROM topics t
CROSS JOIN until u
LEFT JOIN ahead a ON a.topic = t.topic AND a.ahead_ms <= u.until_ms
GROUP BY t.topic, u.hour
