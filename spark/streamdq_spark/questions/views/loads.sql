-- loads: what is coming for each topic and group: its part of the forecast, by the attempts of the last 14 days. If Redis was asked,
-- what waits, and of the forecast the part that is not enqueued yet.
--
--   topic      text
--   group      text      null also for a topic without attempts in these days
--   hour       integer
--   load_low   number
--   load       number
--   load_high  number
WITH queues AS (
    SELECT topic, "group", sum(attempts) AS attempts FROM tried WHERE :last_hour - hour < 336 GROUP BY topic, "group"
), parts AS (
    SELECT topic, "group", attempts / sum(attempts) OVER (PARTITION BY topic) AS part FROM queues
), shared AS (
    SELECT c.topic, p."group", c.hour, c.expected, c.low, c.high, c.waiting,
        coalesce(p.part, 1e0) * CASE WHEN :asked THEN coalesce(l.part, 1e0) ELSE 1e0 END AS part
    FROM coming c
    LEFT JOIN parts p ON p.topic = c.topic
    LEFT JOIN enqueued_later l ON l.topic = c.topic AND l.hour = c.hour
)
SELECT topic, "group", hour,
    CASE WHEN coalesce(expected, waiting) IS NOT NULL THEN coalesce(waiting, 0) + coalesce(low, 0e0) * part END AS load_low,
    CASE WHEN coalesce(expected, waiting) IS NOT NULL THEN coalesce(waiting, 0) + coalesce(expected, 0e0) * part END AS load,
    CASE WHEN coalesce(expected, waiting) IS NOT NULL THEN coalesce(waiting, 0) + coalesce(high, 0e0) * part END AS load_high
FROM shared
