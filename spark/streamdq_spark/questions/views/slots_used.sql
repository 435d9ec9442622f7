-- slots_used: how many attempts had to run at once in each hour of the day, in the last 14 days.
--
--   topic    text
--   group    text
--   clock    integer   the hour of the day, by the clocks of the time zone
--   an_hour  number    attempts that became ready in such an hour, the mean
--   at_once  number    slots, as many as the share :objective of them needed: those that became ready within a window run beside
--                      each other
WITH lately_used AS (
    SELECT topic, "group", ready_hour, clock_of(ready_hour) % 24 AS clock, slots, n FROM slots_by_hour WHERE :last_hour - hour < 336
), counted AS (
    SELECT topic, "group", clock, slots, sum(n) AS n FROM lately_used GROUP BY topic, "group", clock, slots
), placed AS (
    SELECT topic, "group", clock, slots, sum(n) OVER (PARTITION BY topic, "group", clock ORDER BY slots) AS up_to,
        (sum(n) OVER (PARTITION BY topic, "group", clock) - 1) * :objective AS place
    FROM counted
), clocks AS (
    SELECT topic, "group", clock, min(slots) FILTER (WHERE up_to > floor(place)) AS below,
        min(slots) FILTER (WHERE up_to > ceil(place)) AS above, max(place) - floor(max(place)) AS part
    FROM placed
    GROUP BY topic, "group", clock
), hours_used AS (
    SELECT topic, "group", clock, sum(n) / count(DISTINCT ready_hour) AS an_hour FROM lately_used GROUP BY topic, "group", clock
)
SELECT h.topic, h."group", h.clock, h.an_hour, c.below + (c.above - c.below) * c.part AS at_once
FROM hours_used h
JOIN clocks c ON c.topic = h.topic AND c."group" IS NOT DISTINCT FROM h."group" AND c.clock = h.clock
