-- KEY topic, hour
WITH waited AS (
    SELECT topic, hour_of(finished) AS hour, count(*) AS attempts,
        sum(greatest(started - due, 0)) AS late_ms,
        sum(CASE WHEN moved IS NULL THEN 0 ELSE greatest(least(moved, greatest(started, due)) - due, 0) END) AS mover_ms
    FROM asked
    WHERE ended(event) AND started IS NOT NULL AND due IS NOT NULL
    GROUP BY ALL
), retried AS (
    SELECT topic, hour_of(finished) AS hour, count(*) AS retries, sum(greatest(wait_ms, 0)) AS retry_ms
    FROM retry_waits
    GROUP BY ALL
)
SELECT topic, hour,
    coalesce(attempts, 0) AS attempts, coalesce(late_ms, 0) AS late_ms, coalesce(mover_ms, 0) AS mover_ms,
    coalesce(late_ms, 0) - coalesce(mover_ms, 0) AS worker_ms,
    coalesce(retries, 0) AS retries, coalesce(retry_ms, 0) AS retry_ms
FROM waited FULL JOIN retried USING (topic, hour)
