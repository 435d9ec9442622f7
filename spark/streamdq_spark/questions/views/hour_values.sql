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
WITH measured AS (
    SELECT day, topic, hour, measure,
        CASE measure WHEN 'late' THEN late_ms
            WHEN 'took' THEN CASE WHEN event = 'done' THEN ran_ms END
            ELSE CASE WHEN attempt <= 1 THEN due - created END END AS value
    FROM lately
    CROSS JOIN (VALUES ('late'), ('took'), ('ahead')) AS measures(measure)
    WHERE is_attempt
)
SELECT day, topic, hour, measure, value, count(*) AS n FROM measured WHERE value IS NOT NULL GROUP BY day, topic, hour, measure, value
