-- expectations: what each of the `forecast_hours` was expected to bring, by what was known when its day began.
--
--   topic      text
--   hour       integer
--   attempts   integer   null: still to come
--   ago        integer
--   last_week  integer   what the same hour of the week before brought
--   weeks      integer   how many earlier weeks tell
--   expected   number    the median of the same hour of up to seven weeks, each by how much more was done since; null: fewer
--                        than two weeks
--   fewest     number    of these weeks
--   most       number
--   spread     number    what such a count varies by, by chance
WITH earlier_weeks AS (  -- an hour more and less, as clocks may have been changed in between
    SELECT h.topic, h.hour, h.attempts, h.ago, e.attempts AS came, CAST(e.attempts AS DOUBLE) / e.level * h.level AS adjusted,
        CASE WHEN h.hour - e.hour <= 169 THEN e.attempts END AS last_week
    FROM forecast_hours h
    LEFT JOIN forecast_hours e ON e.topic = h.topic AND e.of_week = h.of_week AND e.attempts IS NOT NULL
        AND h.hour - e.hour BETWEEN 167 AND 7 * 168 + 1
), both_ways AS (
    SELECT topic, hour, attempts, ago, max(last_week) AS last_week, count(came) AS weeks, count(adjusted) AS adjusted_weeks,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY came) AS middle, min(came) AS fewest, max(came) AS most,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY adjusted) AS adjusted_middle,
        min(adjusted) AS adjusted_fewest, max(adjusted) AS adjusted_most
    FROM earlier_weeks
    GROUP BY topic, hour, attempts, ago
), chosen AS (
    SELECT topic, hour, attempts, ago, last_week,
        CASE WHEN adjusted_weeks >= 2 THEN adjusted_weeks ELSE weeks END AS weeks,
        CASE WHEN adjusted_weeks >= 2 THEN adjusted_middle WHEN weeks >= 2 THEN middle END AS expected,
        CASE WHEN adjusted_weeks >= 2 THEN adjusted_fewest WHEN weeks >= 2 THEN fewest END AS fewest,
        CASE WHEN adjusted_weeks >= 2 THEN adjusted_most WHEN weeks >= 2 THEN most END AS most
    FROM both_ways
)
SELECT topic, hour, attempts, ago, last_week, weeks, expected, fewest, most, sqrt(greatest(expected, 1e0)) AS spread FROM chosen
