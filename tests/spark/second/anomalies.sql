-- KEY topic, hour, measure
-- ROUNDED score 6
WITH ending AS (  -- hours before it are complete
    SELECT CASE WHEN setting('goes_on') THEN setting('end_ms') // 3600000 ELSE present.hour END AS moment FROM present
), span AS (
    SELECT topic, unnest(generate_series(min(moment) + 1, (SELECT moment FROM ending) - 1)) AS moment FROM counted GROUP BY topic
), h AS MATERIALIZED (
    SELECT s.topic, s.moment, shown(s.moment) AS clock, s.moment // 24 * 24 - 57 * 24 AS begin,
        coalesce(attempts, 0) AS attempts, coalesce(done, 0) AS done, coalesce(failed, 0) AS failed,
        coalesce(late, 0) AS late,
        (SELECT max(b.moment) FROM counted b WHERE b.topic = s.topic AND b.moment < s.moment) AS before
    FROM span s
    LEFT JOIN counted c ON c.topic = s.topic AND c.moment = s.moment
), firsts AS (  -- of two hours in which the clocks show the same, the first
    SELECT topic, clock, min(moment) AS moment FROM h GROUP BY ALL
), parts_then AS MATERIALIZED (  -- an hour's part of the week that begins with it
    SELECT h.topic, h.moment, h.before, h.attempts, h.failed, h.late,
        coalesce(h.done / nullif(sum(w.done), 0), 0) AS part
    FROM h
    JOIN firsts USING (topic, moment)
    JOIN h w ON w.topic = h.topic AND w.clock BETWEEN h.clock AND h.clock + 167 AND w.moment >= h.moment
    GROUP BY h.topic, h.moment, h.before, h.attempts, h.failed, h.late, h.done
), earlier AS (
    SELECT h.topic, h.moment, count(*) AS weeks, list(p.part ORDER BY p.part) AS parts,
        sum(p.attempts) AS attempts, sum(p.failed) AS failed, sum(p.late) AS late
    FROM h
    JOIN firsts f ON f.topic = h.topic AND f.clock IN (SELECT h.clock - 168 * unnest(range(1, 9)))
    JOIN parts_then p ON p.topic = f.topic AND p.moment = f.moment
    WHERE p.before >= h.begin
    GROUP BY h.topic, h.moment
), weekly AS MATERIALIZED (
    SELECT h.*, coalesce(e.weeks, 0) AS weeks,
        CASE WHEN e.weeks >= 3 THEN coalesce(list_sum(e.parts[2:-2]), 0) / (e.weeks - 2) END AS part,
        CASE WHEN e.weeks >= 3 THEN coalesce(e.failed / nullif(e.attempts, 0), 0) END AS failed_before,
        CASE WHEN e.weeks >= 3 THEN coalesce(e.late / nullif(e.attempts, 0), 0) END AS late_before
    FROM h
    LEFT JOIN earlier e USING (topic, moment)
), today AS MATERIALIZED (  -- by what was done, failed and was late in the 24 hours before
    SELECT w.*, d.level,
        CASE WHEN failed_before IS NOT NULL
             THEN greatest(failed_before, least(d.failed_first, d.failed_second)) END AS failed_share,
        CASE WHEN late_before IS NOT NULL
             THEN greatest(late_before, least(d.late_first, d.late_second)) END AS late_share
    FROM weekly w
    JOIN (
        SELECT w.topic, w.moment,
            sum(d.done) FILTER (d.part IS NOT NULL) / nullif(sum(d.part), 0) AS level,
            coalesce(sum(d.failed) FILTER (NOT half) / nullif(sum(d.attempts) FILTER (NOT half), 0), 0) AS failed_first,
            coalesce(sum(d.failed) FILTER (half) / nullif(sum(d.attempts) FILTER (half), 0), 0) AS failed_second,
            coalesce(sum(d.late) FILTER (NOT half) / nullif(sum(d.attempts) FILTER (NOT half), 0), 0) AS late_first,
            coalesce(sum(d.late) FILTER (half) / nullif(sum(d.attempts) FILTER (half), 0), 0) AS late_second
        FROM weekly w
        LEFT JOIN (SELECT *, unnest([false, true]) AS half FROM weekly) d
            ON d.topic = w.topic
            AND CASE WHEN half THEN d.clock BETWEEN w.clock - 12 AND w.clock - 1
                     ELSE d.clock BETWEEN w.clock - 24 AND w.clock - 13 END
        GROUP BY w.topic, w.moment
    ) d USING (topic, moment)
), levels AS (  -- of each of seven days at this time
    SELECT topic, moment, median(level) AS level
    FROM (
        SELECT t.topic, t.moment, k, max(d.level) AS level
        FROM today t, range(7) AS k(k), today d
        WHERE d.topic = t.topic AND d.clock = t.clock - 24 * k
        GROUP BY ALL
    )
    GROUP BY ALL
), told AS MATERIALIZED (
    SELECT t.*, part * l.level AS expected, part * t.level AS expected_today,
        CASE WHEN failed_share IS NOT NULL
             THEN attempts * least(greatest(failed_share, 1e-6), 1 - 1e-6) END AS failed_mean,
        CASE WHEN late_share IS NOT NULL
             THEN attempts * least(greatest(late_share, 1e-6), 1 - 1e-6) END AS late_mean
    FROM today t
    LEFT JOIN levels l USING (topic, moment)
), share_offs AS MATERIALIZED (  -- twice the log of how much likelier a share would be if it were the usual one
    SELECT *,
        CASE WHEN failed_mean IS NULL THEN NULL WHEN failed <= failed_mean THEN 0
             ELSE sqrt(greatest(0, 2 * (greatest(failed - 0.5, failed_mean) * ln(greatest(failed - 0.5, failed_mean) / failed_mean)
                + CASE WHEN attempts > greatest(failed - 0.5, failed_mean)
                       THEN (attempts - greatest(failed - 0.5, failed_mean))
                           * ln((attempts - greatest(failed - 0.5, failed_mean)) / (attempts - failed_mean))
                       ELSE 0 END))) END AS failed_off,
        CASE WHEN late_mean IS NULL THEN NULL WHEN late <= late_mean THEN 0
             ELSE sqrt(greatest(0, 2 * (greatest(late - 0.5, late_mean) * ln(greatest(late - 0.5, late_mean) / late_mean)
                + CASE WHEN attempts > greatest(late - 0.5, late_mean)
                       THEN (attempts - greatest(late - 0.5, late_mean))
                           * ln((attempts - greatest(late - 0.5, late_mean)) / (attempts - late_mean))
                       ELSE 0 END))) END AS late_off
    FROM told
), of_day AS MATERIALIZED (  -- how far the counts of the 24 hours before were from what was expected
    SELECT s.topic, s.moment, s.clock,
        (sum(pow(d.done - d.expected, 2)) - sum(d.expected)) / nullif(sum(d.expected * d.expected), 0) AS dispersion,
        max(d.failed_off) AS failed_worst, max(d.late_off) AS late_worst
    FROM share_offs s
    LEFT JOIN share_offs d ON d.topic = s.topic AND d.clock BETWEEN s.clock - 24 AND s.clock - 1
    GROUP BY ALL
), usual_days AS (
    SELECT topic, moment, median(dispersion) AS dispersion, median(failed_worst) AS failed_worst,
        median(late_worst) AS late_worst
    FROM (
        SELECT s.topic, s.moment, k, max(d.dispersion) AS dispersion, max(d.failed_worst) AS failed_worst,
            max(d.late_worst) AS late_worst
        FROM of_day s, range(7) AS k(k), of_day d
        WHERE d.topic = s.topic AND d.clock = s.clock - 24 * k
        GROUP BY ALL
    )
    GROUP BY ALL
), nearest AS (
    SELECT s.*, u.failed_worst, u.late_worst,
        CASE WHEN u.dispersion IS NOT NULL THEN 1 / greatest(u.dispersion, 1e-6) END AS size,
        CASE WHEN abs(done - expected_today) < abs(done - expected) THEN expected_today ELSE expected END AS mean
    FROM share_offs s
    LEFT JOIN usual_days u USING (topic, moment)
), placed AS (
    SELECT *, greatest(mean, 0.01) AS least_mean,
        CASE WHEN done = 0 THEN 0 WHEN done > greatest(mean, 0.01) THEN greatest(done - 0.5, greatest(mean, 0.01))
             ELSE least(done + 0.5, greatest(mean, 0.01)) END AS x
    FROM nearest
), offs AS MATERIALIZED (
    SELECT *,
        CASE WHEN mean IS NULL OR size IS NULL THEN NULL
             WHEN done BETWEEN least(expected, expected_today) AND greatest(expected, expected_today)
                 AND expected_today IS NOT NULL THEN 0
             WHEN done = 0 AND mean <= 0.01 THEN 0
             ELSE sign(done - least_mean) * sqrt(greatest(0, 2 * (
                 CASE WHEN x > 0 THEN x * ln(x / least_mean) ELSE 0 END
                 - (x + size) * ln((x + size) / (least_mean + size))))) END AS off
    FROM placed
), scored AS (
    SELECT o.*,
        CASE WHEN off < 0 AND done = 0
             THEN -sqrt((  -- since something was done, within a day
                 SELECT sum(z.off * z.off)
                 FROM offs z
                 WHERE z.topic = o.topic AND z.moment <= o.moment AND z.clock BETWEEN o.clock - 23 AND o.clock
                     AND z.moment > coalesce((
                         SELECT max(b.moment)
                         FROM offs b
                         WHERE b.topic = o.topic AND b.moment <= o.moment AND b.clock BETWEEN o.clock - 23 AND o.clock
                             AND (b.done > 0 OR coalesce(b.off, 0) >= 0)
                     ), 0)
             ))
             ELSE off END / sqrt(1 + 1 / greatest(1, weeks - 2)) AS done_score,
        failed_off / greatest(1, coalesce(failed_worst, 0) / 2.3) AS failed_score,
        late_off / greatest(1, coalesce(late_worst, 0) / 2.3) AS late_score
    FROM offs o
), listed AS (
    SELECT topic, moment, attempts, weeks, before, begin, unnest([
        {measure: 'done', value: done, usual: mean, score: done_score},
        {measure: 'failed', value: failed, usual: failed_share * attempts, score: failed_score},
        {measure: 'late', value: late, usual: late_share * attempts, score: late_score}
    ], recursive := true)
    FROM scored
)
SELECT topic, moment * 3600000::BIGINT AS hour, measure, value, usual, attempts, weeks, round(score, 6) AS score,
    coalesce(abs(round(score, 6)) > 4 AND CASE measure
        WHEN 'done' THEN abs(value - usual) >= 0.1 * usual AND (value < usual OR value - usual >= 5)
        ELSE value - usual >= 5 AND value - usual >= 0.01 * attempts END, false) AS anomaly
FROM listed
WHERE before >= begin AND hour >= setting('first_ms') AND hour < setting('end_ms')
