-- growth: how much more was done in the seven days before a day than in those so many weeks earlier: the median of the ratios of
-- days. So three days of seven may be odd: an outage, a campaign, a holiday. Only where all fourteen days are known.
--
--   topic  text
--   ago    integer   the day, as in forecast_hours
--   weeks  integer
--   times  number
WITH days AS (
    SELECT topic, ago, sum(attempts) AS attempts FROM forecast_hours WHERE ago > 0 GROUP BY topic, ago HAVING count(*) = 24
), ratios AS (
    SELECT d.topic, d.ago, w.weeks, d.attempts / nullif(CAST(e.attempts AS DOUBLE), 0e0) AS ratio
    FROM days d
    CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6), (7)) AS w(weeks)
    JOIN days e ON e.topic = d.topic AND e.ago = d.ago + 7 * w.weeks
), weeks_before AS (
    SELECT topic, ago - 1 AS ago, weeks, median(ratio) OVER week AS times, count(*) OVER week AS known
    FROM ratios
    WINDOW week AS (PARTITION BY topic, weeks ORDER BY ago RANGE BETWEEN CURRENT ROW AND 6 FOLLOWING)
)
SELECT topic, ago, weeks, times FROM weeks_before WHERE known = 7 AND times IS NOT NULL
