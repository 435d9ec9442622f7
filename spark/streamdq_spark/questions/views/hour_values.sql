-- hour_values: how often each time was measured of attempts that ended in an hour.
-- Kept by day.
--
--   day      integer
--   topic    text
--   hour     integer
--   measure  text      late: lateness; took: how long those ran that were done; ahead: how long before its due time a job was
--                      enqueued, of first attempts
--   value    integer   ms
--   n        integer
SELECT day, topic, hour, 'late' AS measure, late_ms AS value, count(*) AS n
FROM lately
WHERE is_attempt AND late_ms IS NOT NULL
GROUP BY day, topic, hour, late_ms
UNION ALL
SELECT day, topic, hour, 'took', ran_ms, count(*)
FROM lately
WHERE event = 'done' AND ran_ms IS NOT NULL
GROUP BY day, topic, hour, ran_ms
UNION ALL
SELECT day, topic, hour, 'ahead', due - created, count(*)
FROM lately
WHERE is_attempt AND attempt <= 1 AND due - created IS NOT NULL
GROUP BY day, topic, hour, due - created
