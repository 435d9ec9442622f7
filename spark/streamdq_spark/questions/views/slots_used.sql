-- slots_used: how many attempts had to run at once in each hour of the day, in the last 14 days.
--
--   topic    text
--   group    text
--   clock    integer   the hour of the day, by the clocks of the time zone
--   an_hour  number    attempts that became ready in such an hour, the mean
--   at_once  number    slots, as many as the share :objective of them needed: those that became ready within a window run beside
--                      each other
WITH in_windows AS (
    SELECT topic, "group", ready_hour, of_slot * count(*) OVER (
            PARTITION BY topic, "group", day ORDER BY tenth RANGE BETWEEN 9 PRECEDING AND CURRENT ROW) AS slots
    FROM arrivals
)
SELECT topic, "group", clock_of(ready_hour) % 24 AS clock, count(*) / count(DISTINCT ready_hour) AS an_hour,
    percentile_cont(:objective) WITHIN GROUP (ORDER BY slots) AS at_once
FROM in_windows
GROUP BY topic, "group", clock_of(ready_hour) % 24
