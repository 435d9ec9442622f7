-- incidents: which unusual hours belong together?
-- One row for each incident: anomalies of one topic and measure, with at most one other hour between two of them.
--
--   topic       text
--   measure     text
--   first_hour  time
--   last_hour   time
--   hours       integer   from the first to the last
--   value       integer   in all of these
--   usual       number
--   size        number    the jobs or attempts that are more than usual, or those that are less, whichever are more
--   score       number    that of the most unlikely hour, or hours; rounded to 6 digits
WITH odd AS (
    SELECT topic, measure, hour, hours, score, hour - hours + 1 AS begin FROM judged_hours
    WHERE anomaly AND hour >= :first_hour AND hour < :end_hour
), apart_by AS (
    SELECT *, begin - lag(hour) OVER (PARTITION BY topic, measure ORDER BY hour) AS apart FROM odd
), numbered AS (
    SELECT *, count(*) FILTER (WHERE apart IS NULL OR apart > 2) OVER (PARTITION BY topic, measure ORDER BY hour) AS number
    FROM apart_by
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY topic, measure, number ORDER BY abs(score) DESC, hour) AS place
    FROM numbered
), spans AS (  -- the most unlikely hours, and those that are unusual by themselves
    SELECT topic, measure, number, min(begin) AS first, max(hour) AS last, max(score) FILTER (WHERE place = 1) AS score
    FROM ranked
    WHERE place = 1 OR hours = 1
    GROUP BY topic, measure, number
)
SELECT s.topic, s.measure, s.first * 3600000 AS first_hour, s.last * 3600000 AS last_hour, s.last - s.first + 1 AS hours,
    sum(j.value) AS value, sum(j.usual) AS usual,
    greatest(sum(greatest(j.value - j.usual, 0e0)), sum(greatest(j.usual - j.value, 0e0))) AS size, max(s.score) AS score
FROM spans s
JOIN judged_hours j ON j.topic = s.topic AND j.measure = s.measure AND j.hour BETWEEN s.first AND s.last
GROUP BY s.topic, s.measure, s.number, s.first, s.last
