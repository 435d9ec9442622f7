-- KEY topic, hour
-- ROUNDED low 6, high 6
SELECT topic, moment * 3600000::BIGINT AS hour, expected, low, high, weeks,
    CASE WHEN setting('waits') THEN coalesce(jobs, 0) END AS waiting, greatest(expected, waiting) AS load
FROM banded
LEFT JOIN enqueued USING (topic, moment)
WHERE attempts IS NULL
