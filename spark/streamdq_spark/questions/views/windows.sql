-- windows: the 3, 6 and 12 hours that end with an hour, together. Hours that are far off by themselves count as usual: so these tell
-- of what is too slight for a single hour.
--
-- How much such sums vary, and the worst share of a usual day, come from the last seven days, as those of single hours. The median
-- of so few independent sums a day is below their mean: by the median of a chi-square distribution. Sums below 20 are not judged, of
-- failures apart: a mean without the greatest is too low for such rare jobs, and of few attempts a single job with its retries
-- makes too large a share. Sums vary no less than independent hours do.
--
--   topic         text
--   hour          integer   the last
--   hours         integer   3, 6 or 12
--   done_score    number    null: not known, or of too few
--   failed_score  number
--   late_score    number
--   done_odd      flag
--   failed_odd    flag
--   late_odd      flag
WITH lately AS (  -- seven days, the one before these, and what begins before
    SELECT * FROM hour_scores WHERE hour >= :first_hour - 216
), cleaned AS (
    SELECT topic, hour, clock, hours, attempts, firsts, done, expected, expected_today, dispersion, weeks, failed_usual, late_usual,
        CASE WHEN done_score IS NOT NULL AND failed_score IS NOT NULL AND late_score IS NOT NULL THEN 1 END AS known,
        CASE WHEN is_odd_count(done_score, done, done_usual) THEN done_usual ELSE done END AS done_kept,
        CASE WHEN failed_score > 3.7 THEN failed_usual ELSE failed END AS failed_kept,
        CASE WHEN late_score > 3.7 THEN late_usual ELSE late END AS late_kept
    FROM lately
    CROSS JOIN (VALUES (3), (6), (12)) AS lengths(hours)
), summed AS (
    SELECT topic, hour, clock, hours, weeks, dispersion / hours AS least, count(known) OVER own = hours AS known,
        sum(attempts) OVER own AS attempts, sum(firsts) OVER own AS firsts,
        sum(done) OVER own AS done, sum(done_kept) OVER own AS done_kept, sum(expected) OVER own AS expected,
        sum(expected_today) OVER own AS expected_today,
        sum(failed_kept) OVER own AS failed, sum(failed_usual) OVER own AS failed_usual,
        sum(late_kept) OVER own AS late, sum(late_usual) OVER own AS late_usual
    FROM cleaned
    WINDOW own AS (PARTITION BY topic, hours ORDER BY hour RANGE BETWEEN hours - 1 PRECEDING AND CURRENT ROW)
), apart AS (
    SELECT *,
        share_off(failed, least(greatest(failed_usual, firsts * 1e-6), firsts * (1 - 1e-6)), firsts) AS failed_z,
        share_off(late, least(greatest(late_usual, attempts * 1e-6), attempts * (1 - 1e-6)), attempts) AS late_z
    FROM summed
    WHERE known
), of_day AS (
    SELECT topic, hours, clock,
        (sum(pow(done - expected, 2)) OVER whole - sum(expected) OVER whole)
            / nullif(sum(expected * expected) OVER whole, 0e0) AS dispersion,
        max(failed_z) OVER whole AS failed_worst, max(late_z) OVER whole AS late_worst
    FROM apart
    WINDOW whole AS (PARTITION BY topic, hours ORDER BY clock RANGE BETWEEN 24 PRECEDING AND 1 PRECEDING)
), of_clock AS (
    SELECT topic, hours, clock, max(dispersion) AS dispersion, max(failed_worst) AS failed_worst, max(late_worst) AS late_worst
    FROM of_day
    GROUP BY topic, hours, clock
), sought AS (
    SELECT topic, hours, clock, explode(sequence(0, 6)) AS days_ago FROM of_clock WHERE clock >= clock_of(:first_hour - 24)
), usual_days AS (
    SELECT s.topic, s.hours, s.clock,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY dispersion) / max(CASE s.hours WHEN 3 THEN 0.92e0 WHEN 6 THEN 0.84e0 ELSE 0.69e0 END)
            AS dispersion,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY failed_worst) / max(CASE s.hours WHEN 3 THEN 2e0 WHEN 6 THEN 1.7e0 ELSE 1.4e0 END)
            AS failed_times,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY late_worst) / max(CASE s.hours WHEN 3 THEN 2e0 WHEN 6 THEN 1.7e0 ELSE 1.4e0 END)
            AS late_times
    FROM sought s
    JOIN of_clock c ON c.topic = s.topic AND c.hours = s.hours AND c.clock = s.clock - 24 * s.days_ago
    GROUP BY s.topic, s.hours, s.clock
), nearest AS (
    SELECT a.*, CASE WHEN u.dispersion IS NOT NULL THEN 1 / greatest(u.dispersion, a.least, 1e-6) END AS size,
        greatest(coalesce(u.failed_times, 0e0), 1e0) AS failed_times, greatest(coalesce(u.late_times, 0e0), 1e0) AS late_times,
        CASE WHEN abs(done_kept - expected_today) < abs(done_kept - expected) THEN expected_today ELSE expected END AS done_usual
    FROM apart a
    JOIN usual_days u ON u.topic = a.topic AND u.hours = a.hours AND u.clock = a.clock
), scored AS (
    SELECT topic, hour, hours, attempts, firsts, done_kept, done_usual, failed, failed_usual, late, late_usual,
        CASE WHEN size IS NOT NULL AND done_usual >= 20
             THEN round(done_off(done_kept, expected, expected_today, done_usual, size) / sqrt(1 + 1 / greatest(weeks - 2, 1)), 6)
        END AS done_score,
        round(failed_z / failed_times, 6) AS failed_score, round(late_z / late_times, 6) AS late_score
    FROM nearest
)
SELECT topic, hour, hours, done_score, failed_score, late_score, is_odd_count(done_score, done_kept, done_usual) AS done_odd,
    is_odd_share(failed_score, failed, failed_usual, firsts, hours) AS failed_odd,
    is_odd_share(late_score, late, late_usual, attempts, hours) AND attempts >= 20 AS late_odd
FROM scored
