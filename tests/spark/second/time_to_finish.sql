-- KEY scope, topic, group
WITH ends AS (
    SELECT topic, id, created, "group",
        max(finished) FILTER (event = 'done') AS done_at,
        min(due) FILTER (event <> 'kicked' AND attempt <= 1) AS first_due
    FROM asked
    WHERE created IS NOT NULL
    GROUP BY ALL
), spans AS (
    SELECT 'group' AS scope, topic, "group", done_at - created AS total, done_at - first_due AS after_due
    FROM ends
    WHERE done_at IS NOT NULL
    UNION ALL
    SELECT 'job', topic, NULL, max(done_at) - created,
        CASE WHEN count(*) = count(first_due) THEN max(done_at) - min(first_due) END
    FROM ends
    GROUP BY topic, id, created
    HAVING count(*) = count(done_at)
)
SELECT scope, topic, "group", count(*) AS jobs,
    quantile_cont(total, 0.5) AS total_p50_ms, quantile_cont(total, 0.95) AS total_p95_ms,
    quantile_cont(total, 0.99) AS total_p99_ms, max(total) AS total_max_ms,
    count(after_due) AS after_due_jobs,
    quantile_cont(after_due, 0.5) AS after_due_p50_ms, quantile_cont(after_due, 0.95) AS after_due_p95_ms,
    quantile_cont(after_due, 0.99) AS after_due_p99_ms, max(after_due) AS after_due_max_ms
FROM spans
GROUP BY ALL
