-- weekly_hours: what the same hours of at most eight earlier weeks tell of each hour. Null with fewer than three.
--
--   topic          text
--   hour           integer
--   clock          integer
--   before         integer
--   begin          integer   what was before it tells nothing of the hour
--   attempts       integer   and firsts, done, failed, late: as in all_hours
--   weeks          integer
--   part           number    of the jobs done in a week: the mean without the least and the greatest
--   failed_before  number    the usual share of first attempts, by these hours and those of the topic's last seven days
--   late_before    number    of all attempts
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY topic, clock ORDER BY hour) AS of_clock,
        sum(done) OVER (PARTITION BY topic ORDER BY clock RANGE BETWEEN CURRENT ROW AND 167 FOLLOWING) AS week_done
    FROM all_hours
), firsts AS (  -- of two hours in which the clocks show the same, the first; its part of the week that begins with it
    SELECT topic, clock, before, attempts, firsts, failed, late, coalesce(share(done, week_done), 0e0) AS part
    FROM numbered
    WHERE of_clock = 1
), begun AS (
    SELECT *, CAST(floor(hour / 24e0) AS BIGINT) * 24 - 57 * 24 AS begin FROM all_hours
), sought AS (
    SELECT topic, hour, begin, clock, explode(sequence(1, 8)) AS weeks_ago FROM begun
), placed AS (
    SELECT s.topic, s.hour, f.attempts, f.firsts, f.failed, f.late, f.part,
        row_number() OVER (PARTITION BY s.topic, s.hour ORDER BY part) AS place,
        count(*) OVER (PARTITION BY s.topic, s.hour) AS n
    FROM sought s
    JOIN firsts f ON f.topic = s.topic AND f.clock = s.clock - 168 * s.weeks_ago
    WHERE f.before >= s.begin
), earlier_weeks AS (
    SELECT topic, hour, count(*) AS weeks, sum(attempts) AS attempts, sum(firsts) AS firsts, sum(failed) AS failed,
        sum(late) AS late,
        coalesce(sum(part) FILTER (WHERE place > 1 AND place < n), 0e0) / nullif(max(n) - 2, 0) AS part
    FROM placed
    GROUP BY topic, hour
), known AS (
    SELECT b.*, coalesce(e.weeks, 0) AS weeks, CASE WHEN e.weeks >= 3 THEN e.part END AS part,
        CASE WHEN e.weeks >= 3 THEN CAST(e.attempts AS DOUBLE) END AS of_n,
        CASE WHEN e.weeks >= 3 THEN CAST(e.firsts AS DOUBLE) END AS firsts_n,
        CASE WHEN e.weeks >= 3 THEN CAST(e.failed AS DOUBLE) END AS failed_n,
        CASE WHEN e.weeks >= 3 THEN CAST(e.late AS DOUBLE) END AS late_n
    FROM begun b
    LEFT JOIN earlier_weeks e ON e.topic = b.topic AND e.hour = b.hour
), added AS (
    SELECT *, sum(of_n) OVER week AS whole, sum(of_n * of_n) OVER week AS of_squares,
        sum(firsts_n) OVER week AS firsts_whole, sum(firsts_n * firsts_n) OVER week AS firsts_squares,
        share(sum(failed_n) OVER week, sum(firsts_n) OVER week) AS failed_mean, sum(failed_n * failed_n) OVER week AS failed_squares,
        sum(failed_n * firsts_n) OVER week AS failed_products,
        share(sum(late_n) OVER week, sum(of_n) OVER week) AS late_mean, sum(late_n * late_n) OVER week AS late_squares,
        sum(late_n * of_n) OVER week AS late_products
    FROM known
    WINDOW week AS (PARTITION BY topic ORDER BY clock RANGE BETWEEN 167 PRECEDING AND CURRENT ROW)
)
SELECT topic, hour, clock, before, begin, attempts, firsts, done, failed, late, weeks, part,
    CASE WHEN firsts_n IS NOT NULL THEN usual_share(failed_n, firsts_n, failed_mean,
        beside_chance(failed_mean, failed_squares, failed_products, firsts_squares, firsts_whole)) END AS failed_before,
    CASE WHEN of_n IS NOT NULL THEN usual_share(late_n, of_n, late_mean,
        beside_chance(late_mean, late_squares, late_products, of_squares, whole)) END AS late_before
FROM added
