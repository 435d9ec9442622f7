-- KEY topic, group
WITH claims AS (
    SELECT topic, "group", event, coalesce(body_bytes, 0) AS bytes,
        CASE WHEN started <= finished THEN finished - started ELSE 0 END AS ran
    FROM asked
    WHERE event IN ('done', 'retry', 'dead', 'reclaimed', 'released')
),
spent AS (
    SELECT topic, "group", sum(ran) AS worker_ms, sum(bytes) AS read_bytes,
        count(*) FILTER (event NOT IN ('reclaimed', 'released')) AS attempts,
        count(*) FILTER (event IN ('retry', 'dead')) AS failed, count(*) FILTER (event = 'reclaimed') AS reclaimed,
        coalesce(sum(ran) FILTER (event IN ('retry', 'dead')), 0) AS failed_ms,
        coalesce(sum(ran) FILTER (event = 'reclaimed'), 0) AS reclaimed_ms,
        coalesce(sum(ran) FILTER (event = 'released'), 0) AS put_back_ms
    FROM claims
    GROUP BY ALL
),
bodies AS (
    SELECT topic, "group", id, created, coalesce(max(body_bytes), 0) AS bytes FROM asked GROUP BY ALL
),
jobs AS (
    SELECT topic, "group", count(*) AS jobs, sum(bytes) AS body_bytes FROM bodies GROUP BY ALL
)
SELECT topic, "group", jobs, coalesce(attempts, 0) AS attempts, coalesce(failed, 0) AS failed,
    coalesce(reclaimed, 0) AS reclaimed, coalesce(worker_ms, 0) AS worker_ms,
    coalesce(worker_ms, 0) / nullif((SELECT sum(worker_ms) FROM spent), 0) AS share,
    coalesce(failed_ms, 0) AS failed_ms, failed_ms / nullif(worker_ms, 0) AS failed_share,
    coalesce(reclaimed_ms, 0) AS reclaimed_ms, reclaimed_ms / nullif(worker_ms, 0) AS reclaimed_share,
    coalesce(put_back_ms, 0) AS put_back_ms, body_bytes, coalesce(read_bytes, 0) AS read_bytes
FROM jobs LEFT JOIN spent USING (topic, "group")
