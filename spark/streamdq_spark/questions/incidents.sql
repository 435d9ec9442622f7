-- incidents: which unusual hours belong together?
-- One row for each incident: anomalies of one topic, measure and direction, with at most one other hour between two of them.
--
--   topic       text
--   measure     text
--   first_hour  time
--   last_hour   time
--   hours       integer   how many were unusual
--   value       integer   in all of these
--   usual       number
--   size        number    by how much they differ, in jobs or attempts
--   score       number    that of the most unlikely hour; rounded to 6 digits
WITH odd AS (
    SELECT topic, measure, hour, value, usual, score, value > usual AS more
    FROM judged_hours
    WHERE anomaly AND hour >= :first_hour AND hour < :end_hour
), apart_by AS (
    SELECT *, hour - lag(hour) OVER (PARTITION BY topic, measure, more ORDER BY hour) AS apart FROM odd
), numbered AS (
    SELECT *, count(*) FILTER (WHERE apart IS NULL OR apart > 2) OVER (PARTITION BY topic, measure, more ORDER BY hour) AS number
    FROM apart_by
)
SELECT topic, measure, min(hour) * 3600000 AS first_hour, max(hour) * 3600000 AS last_hour, count(*) AS hours, sum(value) AS value,
    sum(usual) AS usual, abs(sum(value - usual)) AS size, max_by(score, abs(score)) AS score
FROM numbered
GROUP BY topic, measure, more, number
