-- changes: what got better or worse, the latest seven days against the seven before? Both end with the hour of the last event.
-- One row for each topic and measure. Of each a higher figure is worse.
--
--   topic            text
--   measure          text      late (started later than the SLO), failed, dead: shares of attempts; lateness: its 99th percentile in
--                              ms; duration: the 95th of what was done, in ms
--   before           number
--   now              number
--   attempts_before  integer
--   attempts_now     integer
--   verdict          text      too little: fewer than 100 attempts in either; worse or better: shares that differ by three standard
--                              errors (two-proportion z-test) and 0.1 points at least, times that differ by a quarter and 10 ms
--                              at least; else same
WITH counts AS (
    SELECT topic, floor((:last_hour - hour) / 168e0) AS age, sum(attempts) AS attempts, sum(late) AS late, sum(failed) AS failed,
        sum(dead) AS dead
    FROM hours
    WHERE :last_hour - hour < 336 AND attempts > 0
    GROUP BY topic, floor((:last_hour - hour) / 168e0)
), times AS (
    SELECT topic, floor((:last_hour - hour) / 168e0) AS age, measure, value, sum(n) AS n
    FROM hour_values
    WHERE measure IN ('late', 'took') AND :last_hour - hour < 336
    GROUP BY topic, floor((:last_hour - hour) / 168e0), measure, value
), placed AS (
    SELECT *, sum(n) OVER (PARTITION BY topic, age, measure ORDER BY value) AS up_to,
        (sum(n) OVER (PARTITION BY topic, age, measure) - 1) * CASE measure WHEN 'late' THEN 0.99e0 ELSE 0.95e0 END AS place
    FROM times
), percentiles AS (
    SELECT topic, age, measure, sum(n) AS n, max(place) - floor(max(place)) AS part,
        min(value) FILTER (WHERE up_to > floor(place)) AS below, min(value) FILTER (WHERE up_to > ceil(place)) AS above
    FROM placed
    GROUP BY topic, age, measure
), listed AS (
    SELECT topic, age, measure, true AS is_share, attempts AS n,
        CASE measure WHEN 'late' THEN late WHEN 'failed' THEN failed ELSE dead END / attempts AS value
    FROM counts
    CROSS JOIN (VALUES ('late'), ('failed'), ('dead')) AS measures(measure)
    UNION ALL
    SELECT topic, age, CASE measure WHEN 'late' THEN 'lateness' ELSE 'duration' END, false, n, below + (above - below) * part
    FROM percentiles
), both_weeks AS (
    SELECT topic, measure, is_share, max(value) FILTER (WHERE age = 1) AS before, max(value) FILTER (WHERE age = 0) AS now,
        coalesce(max(n) FILTER (WHERE age = 1), 0) AS attempts_before, coalesce(max(n) FILTER (WHERE age = 0), 0) AS attempts_now
    FROM listed
    GROUP BY topic, measure, is_share
), pooled AS (
    SELECT *, (before * attempts_before + now * attempts_now) / (attempts_before + attempts_now) AS pooled,
        1e0 / nullif(attempts_before, 0) + 1e0 / nullif(attempts_now, 0) AS parts
    FROM both_weeks
)
SELECT topic, measure, before, now, attempts_before, attempts_now,
    CASE WHEN least(attempts_before, attempts_now) < 100 THEN 'too little'
         WHEN is_share AND (abs(now - before) < 0.001e0 OR abs(now - before) <= 3 * sqrt(pooled * (1 - pooled) * parts)) THEN 'same'
         WHEN NOT is_share AND (abs(now - before) < 10 OR greatest(now, before) < 1.25e0 * least(now, before)) THEN 'same'
         WHEN now > before THEN 'worse'
         ELSE 'better' END AS verdict
FROM pooled
