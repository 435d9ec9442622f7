-- usual_hours: what each of the `forecast_hours` would bring on a usual day, by what was known when its day began.
--
--   topic, hour, clock, attempts, ago, kind: as in forecast_hours
--   last_week  integer   what the same hour of the week before brought
--   weeks      integer   how many earlier weeks tell
--   usual      number    the median of the same hour of up to seven weeks, each by how much more was done since; null: fewer
--                        than two weeks
--   fewest     number    of these weeks
--   most       number
WITH earlier_weeks AS (  -- an hour more and less, as clocks may have been changed in between
    SELECT h.topic, h.hour, e.attempts AS came, e.attempts * g.times AS adjusted,
        CASE WHEN h.hour - e.hour <= 169 THEN e.attempts END AS last_week
    FROM forecast_hours h
    JOIN forecast_hours e ON e.topic = h.topic AND e.clock % 168 = h.clock % 168 AND e.attempts IS NOT NULL
        AND h.hour - e.hour BETWEEN 167 AND 7 * 168 + 1
    LEFT JOIN growth g ON g.topic = h.topic AND g.ago = h.ago AND g.weeks = CAST(round((h.hour - e.hour) / 168e0) AS BIGINT)
), both_ways AS (
    SELECT topic, hour, max(last_week) AS last_week, count(came) AS weeks, count(adjusted) AS adjusted_weeks,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY came) AS middle, min(came) AS fewest, max(came) AS most,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY adjusted) AS adjusted_middle,
        min(adjusted) AS adjusted_fewest, max(adjusted) AS adjusted_most
    FROM earlier_weeks
    GROUP BY topic, hour
)
SELECT h.topic, h.hour, clock, attempts, ago, kind, last_week,
    CASE WHEN adjusted_weeks >= 2 THEN adjusted_weeks ELSE coalesce(weeks, 0) END AS weeks,
    CASE WHEN adjusted_weeks >= 2 THEN adjusted_middle WHEN weeks >= 2 THEN middle END AS usual,
    CASE WHEN adjusted_weeks >= 2 THEN adjusted_fewest WHEN weeks >= 2 THEN fewest END AS fewest,
    CASE WHEN adjusted_weeks >= 2 THEN adjusted_most WHEN weeks >= 2 THEN most END AS most
FROM forecast_hours h
LEFT JOIN both_ways b ON b.topic = h.topic AND b.hour = h.hour
