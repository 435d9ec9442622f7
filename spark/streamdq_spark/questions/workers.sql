-- workers: how busy are the workers, and how evenly is the work spread?
-- One row for each group, consumer and hour in which one worked, also on attempts that ended later. Day: hour.
--
--   group         text
--   consumer      text
--   hour          time
--   ended         integer   attempts that ended in the hour
--   busy_ms       integer   the part of the hour in which attempts of all topics ran, added up
--   most_at_once  integer
--   slots         integer   the most that this consumer ran at once on that UTC day: a lower bound of its concurrency
--   utilisation   number    busy_ms over an hour of all its slots
--   skew          number    busy_ms of the group's busiest consumer in the hour over their mean; 1 is even
WITH days AS (
    SELECT "group", consumer, hour, ended, busy_ms, most_at_once,
        max(most_at_once) OVER (PARTITION BY "group", consumer, floor(hour / 24e0)) AS slots,
        max(busy_ms) OVER (PARTITION BY "group", hour) AS busiest, avg(busy_ms) OVER (PARTITION BY "group", hour) AS mean
    FROM worked
    WHERE hour >= :first_hour AND hour < :end_hour
)
SELECT "group", consumer, hour * 3600000 AS hour, ended, busy_ms, most_at_once, slots,
    busy_ms / (slots * 3600000) AS utilisation, share(busiest, mean) AS skew
FROM days
