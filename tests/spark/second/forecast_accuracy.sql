-- KEY topic
WITH tested AS (
    SELECT b.*, (
        SELECT max(w.attempts)
        FROM hours w
        WHERE w.topic = b.topic AND w.of_week = b.of_week AND w.attempts IS NOT NULL AND b.moment - w.moment BETWEEN 167 AND 169
    ) AS last_week
    FROM banded b
    WHERE attempts IS NOT NULL AND expected IS NOT NULL AND ago <= 14
)
SELECT topic, count(*) AS hours, sum(attempts) AS attempts,
    CASE WHEN sum(attempts) > 0 THEN sum(abs(attempts - expected)) / sum(attempts) END AS error,
    CASE WHEN sum(attempts) > 0 THEN sum(abs(attempts - last_week)) / sum(attempts) END AS error_last_week,
    count(*) FILTER (attempts BETWEEN low AND high) / count(*) AS covered
FROM tested
WHERE last_week IS NOT NULL
GROUP BY topic
