-- coming: the next 24 hours of each topic.
--
--   topic     text
--   hour      integer
--   weeks     integer   how many earlier weeks tell
--   expected  number    attempts
--   low       number
--   high      number
--   waiting   integer   jobs that wait in Redis and are due in this hour; null: it was not asked
WITH coming_hours AS (
    SELECT topic, hour, weeks, expected, low, high FROM forecasts WHERE attempts IS NULL
    UNION ALL
    SELECT topic, explode(sequence(CAST(:now_hour AS BIGINT), CAST(:now_hour + 23 AS BIGINT))), 0, NULL, NULL, NULL
    FROM (SELECT DISTINCT topic FROM waiting WHERE topic NOT IN (SELECT topic FROM forecasts)) AS new_topics
), due AS (
    SELECT topic, hour, sum(jobs) AS jobs FROM waiting GROUP BY topic, hour
)
SELECT t.topic, t.hour, t.weeks, t.expected, t.low, t.high, CASE WHEN :asked THEN coalesce(d.jobs, 0) END AS waiting
FROM coming_hours t
LEFT JOIN due d ON d.topic = t.topic AND d.hour = t.hour
