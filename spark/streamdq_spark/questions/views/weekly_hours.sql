-- weekly_hours: what the same hours of at most eight earlier weeks tell of each hour. Null with fewer than three.
--
--   topic          text
--   hour           integer
--   clock          integer
--   before         integer
--   begin          integer   what was before it tells nothing of the hour
--   attempts       integer   and done, failed, late
--   weeks          integer
--   part           number    of the jobs done in a week: the mean without the least and the greatest
--   failed_before  number    shares of the attempts of these hours
--   late_before    number
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY topic, clock ORDER BY hour) AS of_clock,
        sum(done) OVER (PARTITION BY topic ORDER BY clock RANGE BETWEEN CURRENT ROW AND 167 FOLLOWING) AS week_done
    FROM all_hours
), firsts AS (  -- of two hours in which the clocks show the same, the first; its part of the week that begins with it
    SELECT topic, clock, before, attempts, failed, late, coalesce(share(done, week_done), 0e0) AS part FROM numbered WHERE of_clock = 1
), begun AS (
    SELECT *, CAST(floor(hour / 24e0) AS BIGINT) * 24 - 57 * 24 AS begin FROM all_hours
), sought AS (
    SELECT topic, hour, begin, clock, explode(sequence(1, 8)) AS weeks_ago FROM begun
), placed AS (
    SELECT s.topic, s.hour, f.attempts, f.failed, f.late, f.part,
        row_number() OVER (PARTITION BY s.topic, s.hour ORDER BY part) AS place,
        count(*) OVER (PARTITION BY s.topic, s.hour) AS n
    FROM sought s
    JOIN firsts f ON f.topic = s.topic AND f.clock = s.clock - 168 * s.weeks_ago
    WHERE f.before >= s.begin
), earlier_weeks AS (
    SELECT topic, hour, count(*) AS weeks, sum(attempts) AS attempts, sum(failed) AS failed, sum(late) AS late,
        coalesce(sum(part) FILTER (WHERE place > 1 AND place < n), 0e0) / nullif(max(n) - 2, 0) AS part
    FROM placed
    GROUP BY topic, hour
)
SELECT b.topic, b.hour, b.clock, b.before, b.begin, b.attempts, b.done, b.failed, b.late, coalesce(e.weeks, 0) AS weeks,
    CASE WHEN e.weeks >= 3 THEN e.part END AS part,
    CASE WHEN e.weeks >= 3 THEN coalesce(share(e.failed, e.attempts), 0e0) END AS failed_before,
    CASE WHEN e.weeks >= 3 THEN coalesce(share(e.late, e.attempts), 0e0) END AS late_before
FROM begun b
LEFT JOIN earlier_weeks e ON e.topic = b.topic AND e.hour = b.hour
