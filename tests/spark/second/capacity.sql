-- KEY topic, group, hour
-- ROUNDED slots_low 3, slots 3, slots_high 3
WITH RECURSIVE tried AS (
    SELECT topic, "group", consumer, finished // days(1) AS day, coalesce(greatest(moved, due), started) AS ready,
        CASE WHEN took(started, finished) > days(2) THEN days(2) ELSE took(started, finished) END AS took
    FROM lately
    WHERE ended(event) AND hour_of(last_ms) - hour_of(finished) < days(14)
), queues AS (  -- a window is how long an attempt takes, or the SLO
    SELECT topic, "group", count(*) AS attempts, CASE WHEN count(took) > 0 THEN greatest(avg(took), 1) END AS attempt_ms,
        CASE WHEN count(took) > 0 THEN greatest(avg(took), 1, setting('slo_ms')) END AS window_ms
    FROM tried
    GROUP BY topic, "group"
), of_days AS (
    SELECT topic, "group", day, greatest(avg(took), 1) AS attempt_ms, greatest(avg(took), 1, setting('slo_ms')) AS window_ms
    FROM tried
    GROUP BY topic, "group", day
    HAVING count(took) > 0
), arrivals AS (  -- by tenths of a window
    SELECT t.topic, t."group", consumer, t.day, ready // 3600000 AS ready_hour,
        CAST(floor(ready * 10 / window_ms) AS BIGINT) AS tenth, attempt_ms / window_ms AS part_of_slot
    FROM tried t
    JOIN of_days d ON d.topic = t.topic AND d."group" IS NOT DISTINCT FROM t."group" AND d.day = t.day
    WHERE ready IS NOT NULL
), in_windows AS (  -- that end with a tenth
    SELECT topic, "group", day, tenth, any_value(part_of_slot) * sum(count(*)) OVER (
            PARTITION BY topic, "group", day ORDER BY tenth RANGE BETWEEN 9 PRECEDING AND CURRENT ROW) AS slots
    FROM arrivals
    GROUP BY topic, "group", day, tenth
), past AS (
    SELECT a.topic, a."group", shown(ready_hour) % 24 AS clock, count(*) / count(DISTINCT ready_hour) AS an_hour,
        quantile_cont(w.slots, getvariable('objective')) AS at_once
    FROM arrivals a
    JOIN in_windows w ON w.topic = a.topic AND w."group" IS NOT DISTINCT FROM a."group" AND w.day = a.day
        AND w.tenth = a.tenth
    GROUP BY ALL
), coming AS (
    SELECT b.topic, q."group", b.moment, q.attempt_ms, q.window_ms, p.an_hour, p.at_once,
        coalesce(q.attempts / sum(q.attempts) OVER (PARTITION BY b.topic, b.moment), 1) AS part,
        unnest([
            {band: 'low', load: b.low * part}, {band: '', load: b.expected * part}, {band: 'high', load: b.high * part}
        ], recursive := true)
    FROM banded b
    LEFT JOIN queues q ON q.topic = b.topic
    LEFT JOIN past p ON p.topic = q.topic AND p."group" IS NOT DISTINCT FROM q."group" AND p.clock = shown(b.moment) % 24
    WHERE b.attempts IS NULL
), beside AS (
    SELECT *, load * window_ms / 3600000 AS mean, load / an_hour AS times, at_once - an_hour * attempt_ms / 3600000 AS burst,
        (mean + greatest(0, normal_quantile(setting('objective'))) * sqrt(mean)) * attempt_ms / window_ms AS by_chance,
        load * attempt_ms / 3600000 + greatest(burst, 0) * greatest(times, sqrt(times)) AS as_it_came
    FROM coming
), needed AS (
    SELECT topic, "group", moment, band, load, attempt_ms,
        CASE WHEN attempt_ms IS NULL THEN NULL
             WHEN load > 0 THEN round(greatest(by_chance, as_it_came), 3)
             ELSE load END AS slots
    FROM beside
), worked_on AS (
    SELECT DISTINCT topic, "group", consumer, dense_rank() OVER (ORDER BY topic, "group" NULLS FIRST) AS number
    FROM arrivals
    WHERE consumer IS NOT NULL
), reached(number, other) AS (  -- from queue to queue, by workers that both have
    SELECT DISTINCT number, number FROM worked_on
    UNION
    SELECT r.number, b.number
    FROM reached r
    JOIN worked_on a ON a.number = r.other
    JOIN worked_on b ON b.consumer = a.consumer
), pools AS (
    SELECT number, dense_rank() OVER (ORDER BY min(other)) AS pool FROM reached GROUP BY number
), pooled AS (
    SELECT DISTINCT topic, "group", pool FROM worked_on JOIN pools USING (number)
), lived AS (
    SELECT m.pool, h.*
    FROM worked(setting('first_ms') - days(14), setting('end_ms')) h
    JOIN (SELECT DISTINCT pool, "group", consumer FROM worked_on JOIN pools USING (number)) m
        ON m."group" IS NOT DISTINCT FROM h."group" AND m.consumer = h.consumer
    WHERE h.hour > (SELECT hour FROM present) * 3600000 - days(14) AND most_of_day IS NOT NULL
), most AS (
    SELECT pool, consumer, max(most_of_day) AS most, sum(ended) AS ended FROM lived GROUP BY ALL
), places AS (
    SELECT pool, quantile_cont(most, 0.5) AS concurrency FROM (SELECT pool, most, unnest(range(CAST(ended AS BIGINT))) FROM most) GROUP BY pool
), there AS (
    SELECT pool, quantile_cont(n, 0.5) AS workers_seen
    FROM (
        SELECT pool, hour, count(DISTINCT consumer) AS n
        FROM lived
        WHERE hour > (SELECT hour FROM present) * 3600000 - days(1)
        GROUP BY ALL
    )
    GROUP BY pool
), staffed AS (
    SELECT n.*, p.pool, c.concurrency, t.workers_seen,
        ceil(round(sum(slots) OVER (PARTITION BY p.pool, n.moment, n.band) / (0.8 * c.concurrency), 6)) AS workers
    FROM needed n
    LEFT JOIN pooled p ON p.topic = n.topic AND p."group" IS NOT DISTINCT FROM n."group"
    LEFT JOIN places c ON c.pool = p.pool
    LEFT JOIN there t ON t.pool = p.pool
)
SELECT topic, "group", moment * 3600000::BIGINT AS hour,
    any_value(load) FILTER (band = 'low') AS load_low, any_value(load) FILTER (band = '') AS load,
    any_value(load) FILTER (band = 'high') AS load_high, any_value(attempt_ms) AS attempt_ms,
    any_value(slots) FILTER (band = 'low') AS slots_low, any_value(slots) FILTER (band = '') AS slots,
    any_value(slots) FILTER (band = 'high') AS slots_high, any_value(pool) AS pool, any_value(concurrency) AS concurrency,
    any_value(workers) FILTER (band = 'low') AS workers_low, any_value(workers) FILTER (band = '') AS workers,
    any_value(workers) FILTER (band = 'high') AS workers_high, any_value(workers_seen) AS workers_seen
FROM staffed
GROUP BY topic, "group", moment
