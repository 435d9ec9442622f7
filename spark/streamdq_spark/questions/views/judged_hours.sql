-- judged_hours: the rows of `anomalies`, of all hours that are known, with a busy day of the topic in the 57 days before or on the
-- day.
--
-- Of jobs done, usual is the hour's part of a week times the level: that of the last 24 hours, or the middle one of the last
-- seven days, whichever is closer to what came. So the first tells of a lasting change for a day, and the second does not take
-- the end of an incident for one. How much hours vary beside chance is the median of the last seven days, by the method of
-- moments: the variance of the counts is expected + dispersion * expected². Hours in which nothing was done add up. Of shares,
-- the score is divided by that of the worst hour of a usual day, if that is more than chance makes of it.
WITH of_day AS (
    SELECT topic, clock,
        (sum(pow(done - expected, 2)) OVER whole - sum(expected) OVER whole)
            / nullif(sum(expected * expected) OVER whole, 0e0) AS dispersion,
        max(failed_off) OVER whole AS failed_worst, max(late_off) OVER whole AS late_worst
    FROM expected_hours
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
), nearest AS (
    SELECT h.*, CASE WHEN u.dispersion IS NOT NULL THEN 1 / greatest(u.dispersion, 1e-6) END AS size, u.failed_worst, u.late_worst,
        CASE WHEN abs(done - expected_today) < abs(done - expected) THEN expected_today ELSE expected END AS done_usual
    FROM expected_hours h
    LEFT JOIN usual_days u ON u.topic = h.topic AND u.clock = h.clock
), offs AS (
    SELECT *,
        CASE WHEN done_usual IS NULL OR size IS NULL THEN NULL
             WHEN done BETWEEN least(expected, expected_today) AND greatest(expected, expected_today) THEN 0e0
             WHEN done = 0 AND done_usual <= 0.01 THEN 0e0
             ELSE count_off(done, greatest(done_usual, 0.01e0), size) END AS off
    FROM nearest
), outages AS (  -- an outage begins after an hour that is none
    SELECT *, done = 0 AND coalesce(off, 0e0) < 0 AS is_out,
        count(*) FILTER (WHERE NOT (done = 0 AND coalesce(off, 0e0) < 0)) OVER (PARTITION BY topic ORDER BY hour) AS number
    FROM offs
), added AS (
    SELECT *, sum(off * off) FILTER (WHERE is_out) OVER (
        PARTITION BY topic, number ORDER BY clock RANGE BETWEEN 23 PRECEDING AND CURRENT ROW) AS outage
    FROM outages
), scored AS (
    SELECT topic, hour, before, begin, attempts, done, failed, late, weeks, done_usual, failed_share * attempts AS failed_usual,
        late_share * attempts AS late_usual,
        -- What is expected is a mean of so many, and varies as well.
        round(CASE WHEN is_out THEN -sqrt(outage) ELSE off END / sqrt(1 + 1 / greatest(weeks - 2, 1)), 6) AS done_score,
        round(failed_off / greatest(coalesce(failed_worst, 0e0) / 2.3e0, 1e0), 6) AS failed_score,
        round(late_off / greatest(coalesce(late_worst, 0e0) / 2.3e0, 1e0), 6) AS late_score
    FROM added
), busy AS (
    SELECT DISTINCT topic, explode(sequence(day, day + 57)) AS day FROM busy_days
), listed AS (
    SELECT s.topic, hour, measure, attempts, weeks,
        CASE measure WHEN 'done' THEN done WHEN 'failed' THEN failed ELSE late END AS value,
        CASE measure WHEN 'done' THEN done_usual WHEN 'failed' THEN failed_usual ELSE late_usual END AS usual,
        CASE measure WHEN 'done' THEN done_score WHEN 'failed' THEN failed_score ELSE late_score END AS score
    FROM scored s
    JOIN busy b ON b.topic = s.topic AND b.day = floor(s.hour / 24e0)
    CROSS JOIN (VALUES ('done'), ('failed'), ('late')) AS measures(measure)
    WHERE before >= begin
)
SELECT topic, hour, measure, value, usual, attempts, weeks, score,
    coalesce(abs(score) > 4 AND CASE measure
        WHEN 'done' THEN abs(value - usual) >= 0.1e0 * usual AND (value < usual OR value >= usual + 5)
        ELSE value >= usual + 5 AND value >= usual + 0.01e0 * attempts END, false) AS anomaly
FROM listed
