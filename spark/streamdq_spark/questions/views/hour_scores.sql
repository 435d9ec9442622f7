-- hour_scores: how unusual each hour is by itself.
--
-- Of jobs done, usual is the hour's part of a week times the level: that of the last 24 hours, or the middle one of the last
-- seven days, whichever is closer to what came. So the first tells of a lasting change for a day, and the second does not take
-- the end of an incident for one. If the same hour of the day before was off in the same direction, usual reaches to half as much
-- again: so a batch at another time is news for a day. How much hours vary beside chance is the median of the last seven days, by
-- the method of moments: the variance of the counts is expected + dispersion * expected². Hours in which nothing was done add up.
-- Of shares, the score is divided by that of the worst hour of a usual day, if that is more than chance makes of it.
--
--   topic, hour, clock, before, begin, attempts, firsts, done, failed, late, weeks: as in weekly_hours
--   expected        number    jobs done, as in expected_hours, unless the day before is closer
--   expected_today  number
--   done_usual      number
--   dispersion      number
--   failed_usual    number
--   late_usual      number
--   done_score      number    null: not known
--   failed_score    number
--   late_score      number
WITH nearest AS (
    SELECT *, CASE WHEN abs(done - expected_today) < abs(done - expected) THEN expected_today ELSE expected END AS nearer_usual
    FROM expected_hours
), days_before AS (  -- much more or less: by half, and beyond chance
    SELECT *, max(CASE WHEN done > nearer_usual THEN much END) OVER day_before AS more_before,
        min(CASE WHEN done < nearer_usual THEN much END) OVER day_before AS less_before
    FROM (
        SELECT *, CASE WHEN abs(done - nearer_usual) > greatest(nearer_usual / 2, 4 * sqrt(greatest(nearer_usual, 1e0)))
                       THEN done END AS much
        FROM nearest
    ) AS compared
    WINDOW day_before AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 24 PRECEDING AND 24 PRECEDING)
), again AS (
    SELECT *, CASE
            WHEN done > nearer_usual AND more_before > nearer_usual
            THEN least(done, nearer_usual + 1.5e0 * (more_before - nearer_usual))
            WHEN done < nearer_usual AND less_before < nearer_usual
            THEN greatest(done, nearer_usual - 1.5e0 * (nearer_usual - less_before)) END AS as_before
    FROM days_before
), adapted AS (
    SELECT topic, hour, clock, before, begin, attempts, firsts, done, failed, late, weeks, failed_share, late_share, failed_off,
        late_off, as_before,
        coalesce(as_before, expected) AS expected, coalesce(as_before, expected_today) AS expected_today,
        coalesce(as_before, nearer_usual) AS done_usual
    FROM again
), of_day AS (
    SELECT topic, clock,
        (sum(pow(done - expected, 2)) OVER whole - sum(expected) OVER whole)
            / nullif(sum(expected * expected) OVER whole, 0e0) AS dispersion,
        max(failed_off) OVER whole AS failed_worst, max(late_off) OVER whole AS late_worst
    FROM adapted
    WINDOW whole AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 24 PRECEDING AND 1 PRECEDING)
), of_clock AS (
    SELECT topic, clock, max(dispersion) AS dispersion, max(failed_worst) AS failed_worst, max(late_worst) AS late_worst
    FROM of_day
    GROUP BY topic, clock
), sought AS (
    SELECT topic, clock, explode(sequence(0, 6)) AS days_ago FROM of_clock
), usual_days AS (
    SELECT s.topic, s.clock, percentile_cont(0.5) WITHIN GROUP (ORDER BY dispersion) AS dispersion,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY failed_worst) AS failed_worst,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY late_worst) AS late_worst
    FROM sought s
    JOIN of_clock c ON c.topic = s.topic AND c.clock = s.clock - 24 * s.days_ago
    GROUP BY s.topic, s.clock
), offs AS (
    SELECT a.*, u.dispersion, u.failed_worst, u.late_worst, CASE WHEN u.dispersion IS NOT NULL
            THEN done_off(done, expected, expected_today, done_usual, 1 / greatest(u.dispersion, 1e-6))
                / CASE WHEN as_before IS NULL THEN 1e0 ELSE sqrt(2e0) END END AS off
    FROM adapted a
    LEFT JOIN usual_days u ON u.topic = a.topic AND u.clock = a.clock
), outages AS (  -- an outage begins after an hour that is none
    SELECT *, done = 0 AND coalesce(off, 0e0) < 0 AS is_out,
        count(*) FILTER (WHERE NOT (done = 0 AND coalesce(off, 0e0) < 0)) OVER (PARTITION BY topic ORDER BY hour) AS number
    FROM offs
), added AS (
    SELECT *, sum(off * off) FILTER (WHERE is_out) OVER (
        PARTITION BY topic, number ORDER BY clock RANGE BETWEEN 23 PRECEDING AND CURRENT ROW) AS outage
    FROM outages
)
SELECT topic, hour, clock, before, begin, attempts, firsts, done, failed, late, weeks, expected, expected_today, done_usual,
    dispersion, failed_share * firsts AS failed_usual, late_share * attempts AS late_usual,
    -- What is expected is a mean of so many, and varies as well.
    round(CASE WHEN is_out THEN -sqrt(outage) ELSE off END / sqrt(1 + 1 / greatest(weeks - 2, 1)), 6) AS done_score,
    round(failed_off / greatest(coalesce(failed_worst, 0e0) / 2.3e0, 1e0), 6) AS failed_score,
    round(late_off / greatest(coalesce(late_worst, 0e0) / 2.3e0, 1e0), 6) AS late_score
FROM added
