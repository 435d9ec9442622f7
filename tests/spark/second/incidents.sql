-- KEY topic, measure, first_hour
-- ROUNDED score 6
-- Of the second calculation's own anomalies.
WITH odd AS (
    SELECT *, value > usual AS more FROM second_anomalies WHERE anomaly
), begun AS (
    SELECT *,
        count(*) FILTER (NOT EXISTS (
            SELECT 1
            FROM odd b
            WHERE b.topic = o.topic AND b.measure = o.measure AND b.more = o.more
                AND b.hour < o.hour AND b.hour >= o.hour - 2 * 3600000
        )) OVER (PARTITION BY topic, measure, more ORDER BY hour) AS number
    FROM odd o
)
SELECT topic, measure, min(hour) AS first_hour, max(hour) AS last_hour, count(*) AS hours, sum(value) AS value,
    sum(usual) AS usual, abs(sum(value - usual)) AS size, arg_max(score, abs(score)) AS score
FROM begun
GROUP BY topic, measure, more, number
