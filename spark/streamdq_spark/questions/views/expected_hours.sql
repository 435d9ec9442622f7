-- expected_hours: what was to be expected of each hour.
--
--   topic, hour, clock, before, begin, attempts, firsts, done, failed, late, weeks: as in weekly_hours
--   expected        number    jobs done, by the level of the last seven days: the middle one
--   expected_today  number    by that of the last 24 hours
--   failed_share    number    the usual share of first attempts; that of both halves of the last 24 hours if that is more
--   late_share      number    of all attempts
--   failed_off      number    how far the hour is from it, in standard deviations
--   late_off        number
WITH today AS (
    SELECT *,
        sum(done) FILTER (WHERE part IS NOT NULL) OVER whole / nullif(sum(part) OVER whole, 0e0) AS level,
        coalesce(share(sum(failed) OVER first_half, sum(firsts) OVER first_half), 0e0) AS failed_first,
        coalesce(share(sum(failed) OVER second_half, sum(firsts) OVER second_half), 0e0) AS failed_second,
        coalesce(share(sum(late) OVER first_half, sum(attempts) OVER first_half), 0e0) AS late_first,
        coalesce(share(sum(late) OVER second_half, sum(attempts) OVER second_half), 0e0) AS late_second
    FROM weekly_hours
    WINDOW whole AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 24 PRECEDING AND 1 PRECEDING),
        first_half AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 24 PRECEDING AND 13 PRECEDING),
        second_half AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 12 PRECEDING AND 1 PRECEDING)
), of_clock AS (
    SELECT topic, clock, max(level) AS level FROM today GROUP BY topic, clock
), sought AS (
    SELECT topic, clock, explode(sequence(0, 6)) AS days_ago FROM of_clock
), levels AS (
    SELECT s.topic, s.clock, percentile_cont(0.5) WITHIN GROUP (ORDER BY level) AS level
    FROM sought s
    JOIN of_clock c ON c.topic = s.topic AND c.clock = s.clock - 24 * s.days_ago
    WHERE level IS NOT NULL
    GROUP BY s.topic, s.clock
), shares AS (
    SELECT t.topic, t.hour, t.clock, t.before, t.begin, t.attempts, t.firsts, t.done, t.failed, t.late, t.weeks,
        t.part * l.level AS expected, t.part * t.level AS expected_today,
        CASE WHEN failed_before IS NOT NULL THEN greatest(failed_before, least(failed_first, failed_second)) END AS failed_share,
        CASE WHEN late_before IS NOT NULL THEN greatest(late_before, least(late_first, late_second)) END AS late_share
    FROM today t
    LEFT JOIN levels l ON l.topic = t.topic AND l.clock = t.clock
)
SELECT *,
    CASE WHEN failed_share IS NOT NULL
         THEN share_off(failed, firsts * least(greatest(failed_share, 1e-6), 1 - 1e-6), firsts) END AS failed_off,
    CASE WHEN late_share IS NOT NULL
         THEN share_off(late, attempts * least(greatest(late_share, 1e-6), 1 - 1e-6), attempts) END AS late_off
FROM shares
