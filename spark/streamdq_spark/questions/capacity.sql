-- capacity: how many workers will it take in the coming hours, so that the share :objective of the attempts starts within the SLO?
-- One row for each topic, group and coming hour. What is not known is null.
--
--   topic         text
--   group         text
--   hour          time
--   load_low      number    attempts that come due: the group's part of the forecast, with its band
--   load          number
--   load_high     number
--   attempt_ms    number    mean running time, of at most 48 hours each
--   slots_low     number    attempts at once, rounded to 3 digits
--   slots         number    rounded to 3 digits. As many as the same hour of the day needed: for another load than that hour's
--                           mean, what an attempt has beside it grows with the load, and what is above the mean with the load or
--                           its root, whichever is more. At least as much as chance alone needs, by the root of the load: the load
--                           of a system with infinitely many servers and square-root staffing (Jennings, Mandelbaum, Massey,
--                           Whitt, Server Staffing to Meet Time-Varying Demand, 1996)
--   slots_high    number    rounded to 3 digits
--   pool          integer   queues that share workers have the same
--   pool_low      number    slots of the whole pool, rounded to 3 digits, the same in all its rows of an hour. Queues do not have
--   pool_slots    number    their worst moments together, so what chance adds to their means adds up by its squares. What no
--   pool_high     number    chance explains, such as bursts at the full hour, adds up as it is
--   concurrency   number    how many handlers a worker of the pool ran at once
--   workers_low   integer   of the whole pool: its slots over 80 % of the concurrency
--   workers       integer
--   workers_high  integer
--   workers_seen  number
WITH times AS (
    SELECT topic, "group", greatest(sum(ran_ms) / sum(ran), 1e0) AS attempt_ms,
        greatest(sum(ran_ms) / sum(ran), 1e0, CAST(:slo_ms AS DOUBLE)) AS window_ms
    FROM tried
    WHERE ran > 0 AND :last_hour - hour < 336
    GROUP BY topic, "group"
), bands AS (
    SELECT topic, "group", hour, band, CASE band WHEN 'low' THEN load_low WHEN 'high' THEN load_high ELSE load END AS load
    FROM loads
    CROSS JOIN (VALUES ('low'), ('middle'), ('high')) AS bands(band)
), timed AS (
    SELECT b.topic, b."group", b.hour, b.band, b.load, t.attempt_ms, t.window_ms, s.an_hour, s.at_once,
        b.load * t.window_ms / 3600000 AS mean
    FROM bands b
    LEFT JOIN times t ON t.topic = b.topic AND t."group" IS NOT DISTINCT FROM b."group"
    LEFT JOIN slots_used s ON s.topic = b.topic AND s."group" IS NOT DISTINCT FROM b."group" AND s.clock = clock_of(b.hour) % 24
), grown AS (  -- own: the part of a slot that an attempt takes; base: slots, the mean; chance: the most beside one by chance
    SELECT topic, "group", hour, band, load, attempt_ms, attempt_ms / window_ms AS own, load * attempt_ms / 3600000 AS base,
        :objective_z * sqrt(mean) * attempt_ms / window_ms AS spread, at_once, an_hour * attempt_ms / 3600000 AS was,
        ceil(an_hour * window_ms / 3600000 + :objective_z * sqrt(an_hour * window_ms / 3600000)) AS chance,
        greatest(load / an_hour, sqrt(load / an_hour)) AS growth
    FROM timed
), both_ways AS (
    SELECT topic, "group", hour, band, load, attempt_ms, own, base, spread, (at_once - own) * growth AS others,
        greatest(at_once - was - own, 0e0) * growth AS beside, greatest(at_once - (1 + chance) * own, 0e0) * growth AS burst
    FROM grown
), needed AS (
    SELECT topic, "group", hour, band, load, attempt_ms, CASE WHEN load IS NOT NULL THEN own END AS own, base,
        CASE WHEN attempt_ms IS NULL THEN NULL
             WHEN load > 0 THEN round(greatest(base + spread, coalesce(own + least(others, base + beside), 0e0)), 3)
             ELSE load END AS slots,
        coalesce(burst, 0e0) AS burst, greatest(spread, coalesce(beside - burst, 0e0)) AS spread
    FROM both_ways
), pooled AS (
    SELECT n.topic, n."group", n.hour, n.band, n.load, n.attempt_ms, n.slots, p.pool, w.concurrency, w.workers_seen,
        round(least(sum(n.slots) OVER of_pool, sum(n.base) OVER of_pool + sqrt(sum(n.spread * n.spread) OVER of_pool)
            + sum(n.burst) OVER of_pool + max(n.own) OVER of_pool), 3) AS pool_slots
    FROM needed n
    LEFT JOIN pools p ON p.topic = n.topic AND p."group" IS NOT DISTINCT FROM n."group"
    LEFT JOIN pool_workers w ON w.pool = p.pool
    WINDOW of_pool AS (PARTITION BY p.pool, n.hour, n.band)
), staffed AS (
    SELECT *, ceil(round(pool_slots / (:busy * concurrency), 6)) AS workers FROM pooled
)
SELECT topic, "group", hour * 3600000 AS hour, max(load) FILTER (WHERE band = 'low') AS load_low,
    max(load) FILTER (WHERE band = 'middle') AS load, max(load) FILTER (WHERE band = 'high') AS load_high, attempt_ms,
    max(slots) FILTER (WHERE band = 'low') AS slots_low, max(slots) FILTER (WHERE band = 'middle') AS slots,
    max(slots) FILTER (WHERE band = 'high') AS slots_high, pool,
    max(pool_slots) FILTER (WHERE band = 'low') AS pool_low, max(pool_slots) FILTER (WHERE band = 'middle') AS pool_slots,
    max(pool_slots) FILTER (WHERE band = 'high') AS pool_high, concurrency,
    max(workers) FILTER (WHERE band = 'low') AS workers_low, max(workers) FILTER (WHERE band = 'middle') AS workers,
    max(workers) FILTER (WHERE band = 'high') AS workers_high, workers_seen
FROM staffed
GROUP BY topic, "group", hour, attempt_ms, pool, concurrency, workers_seen
