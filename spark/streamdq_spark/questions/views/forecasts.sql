-- forecasts: the coming hours, and those of the last fourteen days as they were forecast, each with its band: 80 % of the errors
-- of the four weeks before its day lie within. With less than a week of such errors, it is the least and the most of the weeks.
--
--   topic      text
--   hour       integer
--   attempts   integer   null: still to come
--   last_week  integer
--   weeks      integer
--   expected   number
--   low        number    rounded to 6 digits, so that an unchanged count is not outside by the last bit
--   high       number    rounded to 6 digits
WITH misses AS (
    SELECT topic, ago, (attempts - expected) / spread AS miss FROM expectations WHERE attempts IS NOT NULL AND expected IS NOT NULL
), days AS (
    SELECT DISTINCT topic, ago FROM expectations WHERE ago <= 14
), bands AS (
    SELECT d.topic, d.ago, percentile_cont(0.1) WITHIN GROUP (ORDER BY miss) AS lower,
        percentile_cont(0.9) WITHIN GROUP (ORDER BY miss) AS upper
    FROM days d
    JOIN misses m ON m.topic = d.topic AND m.ago BETWEEN d.ago + 1 AND d.ago + 28
    GROUP BY d.topic, d.ago
    HAVING count(*) >= 168
)
SELECT t.topic, t.hour, attempts, last_week, weeks, expected,
    CASE WHEN expected IS NULL THEN NULL WHEN lower IS NULL THEN round(greatest(fewest, 0e0), 6)
         ELSE round(greatest(expected + lower * spread, 0e0), 6) END AS low,
    CASE WHEN expected IS NULL THEN NULL WHEN upper IS NULL THEN round(greatest(most, 0e0), 6)
         ELSE round(greatest(expected + upper * spread, 0e0), 6) END AS high
FROM expectations t
LEFT JOIN bands b ON b.topic = t.topic AND b.ago = t.ago
WHERE t.ago <= 14
