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
WITH weeks AS (
    SELECT topic, floor((:last_hour - hour) / 168e0) AS age, count(*) AS attempts,
        count(*) FILTER (WHERE late_ms > :slo_ms) AS late, count(*) FILTER (WHERE has_failed) AS failed,
        count(*) FILTER (WHERE event = 'dead') AS dead, count(late_ms) AS timed,
        count(*) FILTER (WHERE event = 'done' AND ran_ms IS NOT NULL) AS took,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY late_ms) AS lateness,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY CASE WHEN event = 'done' THEN ran_ms END) AS duration
    FROM recent
    WHERE is_attempt AND :last_hour - hour < 336
    GROUP BY topic, floor((:last_hour - hour) / 168e0)
), listed AS (
    SELECT topic, age, measure, measure IN ('late', 'failed', 'dead') AS is_share,
        CASE measure WHEN 'lateness' THEN timed WHEN 'duration' THEN took ELSE attempts END AS n,
        CASE measure WHEN 'late' THEN late / attempts WHEN 'failed' THEN failed / attempts WHEN 'dead' THEN dead / attempts
            WHEN 'lateness' THEN lateness ELSE duration END AS value
    FROM weeks
    CROSS JOIN (VALUES ('late'), ('failed'), ('dead'), ('lateness'), ('duration')) AS measures(measure)
), both_weeks AS (
    SELECT topic, measure, is_share, max(value) FILTER (WHERE age = 1) AS before, max(value) FILTER (WHERE age = 0) AS now,
        coalesce(max(n) FILTER (WHERE age = 1), 0) AS attempts_before, coalesce(max(n) FILTER (WHERE age = 0), 0) AS attempts_now
    FROM listed
    WHERE n > 0
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
