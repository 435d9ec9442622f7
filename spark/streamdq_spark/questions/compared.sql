-- compared: what changed from one time span to another, as after a release, beyond what chance makes of it?
-- One row for each topic, group and measure, and class of error. Attempts count by when they ended.
--
--   topic      text
--   group      text
--   measure    text      failed, dead, error: shares of attempts, the last of those that failed with this class; lateness_p50,
--                        lateness_p99, duration_p50, duration_p99: in ms, the last two of what was done; attempts: in an hour
--   error      text      null but for the measure error
--   before     number
--   after      number
--   of_before  integer   how many attempts tell
--   of_after   integer
--   chance     number    how likely a difference like this or a greater one is if nothing changed, for all measures of the table
--                        together (Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979); rounded to 4 digits. Of
--                        shares by a two-proportion z-test. Of a percentile by the share of attempts above that of both spans
--                        together: the median test (Mood, Introduction to the Theory of Statistics, 1950) for any percentile
--   verdict    text      worse, better, same, too little, for errors also new and gone; not judged. A change has a chance below
--                        5 % and is at least 0.1 percentage points, or a tenth and 5 ms; new or gone errors always matter
--   size       number    the greater value over the smaller one, both a little raised, so that one from hardly anything is not
--                        endless
WITH attempts AS (
    SELECT topic, "group", hour, event, has_failed, CASE WHEN has_failed THEN error END AS error, late_ms,
        CASE WHEN event = 'done' THEN ran_ms END AS took_ms,
        CASE WHEN finished >= :before_since AND finished < :before_until THEN 0
             WHEN finished >= :after_since AND finished < :after_until THEN 1 END AS span
    FROM asked
    WHERE is_attempt
), in_spans AS (
    SELECT * FROM attempts WHERE span IS NOT NULL
), limits AS (
    SELECT topic, "group", percentile_cont(0.5) WITHIN GROUP (ORDER BY late_ms) AS lateness_p50,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY late_ms) AS lateness_p99,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY took_ms) AS duration_p50,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY took_ms) AS duration_p99
    FROM in_spans
    GROUP BY topic, "group"
), own_limits AS (
    SELECT topic, "group", span, percentile_cont(0.5) WITHIN GROUP (ORDER BY late_ms) AS lateness_p50,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY late_ms) AS lateness_p99,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY took_ms) AS duration_p50,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY took_ms) AS duration_p99
    FROM in_spans
    GROUP BY topic, "group", span
), counted AS (
    SELECT a.topic, a."group", a.span, a.hour, count(*) AS attempts, count(late_ms) AS timed, count(took_ms) AS took,
        count(*) FILTER (WHERE has_failed) AS failed, count(*) FILTER (WHERE event = 'dead') AS dead,
        count(*) FILTER (WHERE late_ms > lateness_p50) AS lateness_p50, count(*) FILTER (WHERE late_ms > lateness_p99) AS lateness_p99,
        count(*) FILTER (WHERE took_ms > duration_p50) AS duration_p50, count(*) FILTER (WHERE took_ms > duration_p99) AS duration_p99
    FROM in_spans a
    JOIN limits l ON l.topic = a.topic AND l."group" IS NOT DISTINCT FROM a."group"
    GROUP BY a.topic, a."group", a.span, a.hour
), errors AS (
    SELECT topic, "group", error, span, hour, count(*) AS x FROM in_spans WHERE error IS NOT NULL GROUP BY topic, "group", error, span, hour
), classes AS (
    SELECT DISTINCT topic, "group", error FROM errors
), hours AS (  -- of so many attempts n, x count
    SELECT topic, "group", measure, NULL AS error, span, hour,
        CASE WHEN measure LIKE 'lateness%' THEN timed WHEN measure LIKE 'duration%' THEN took ELSE attempts END AS n,
        CASE measure WHEN 'failed' THEN failed WHEN 'dead' THEN dead WHEN 'lateness_p50' THEN lateness_p50
            WHEN 'lateness_p99' THEN lateness_p99 WHEN 'duration_p50' THEN duration_p50 ELSE duration_p99 END AS x
    FROM counted
    CROSS JOIN (VALUES ('failed'), ('dead'), ('lateness_p50'), ('lateness_p99'), ('duration_p50'), ('duration_p99')) AS measures(measure)
    UNION ALL
    SELECT h.topic, h."group", 'error', c.error, h.span, h.hour, h.attempts, coalesce(e.x, 0)
    FROM classes c
    JOIN counted h ON h.topic = c.topic AND h."group" IS NOT DISTINCT FROM c."group"
    LEFT JOIN errors e ON e.topic = c.topic AND e."group" IS NOT DISTINCT FROM c."group" AND e.error = c.error AND e.span = h.span
        AND e.hour = h.hour
), shares AS (
    SELECT *, sum(x) OVER own / sum(n) OVER own AS share
    FROM hours
    WHERE n > 0
    WINDOW own AS (PARTITION BY topic, "group", measure, error, span)
), spans AS (  -- with the variance of the share, of hours as clusters (Cochran, Sampling Techniques, 1977)
    SELECT topic, "group", measure, error, span, sum(n) AS n, sum(x) AS x, count(*) AS hours, max(share) AS share,
        sum(pow(x - share * n, 2)) / pow(sum(n), 2) * count(*) / nullif(count(*) - 1, 0) AS variance
    FROM shares
    GROUP BY topic, "group", measure, error, span
), measures AS (
    SELECT topic, "group", measure, error, max(share) FILTER (WHERE span = 0) AS share_before,
        max(share) FILTER (WHERE span = 1) AS share_after, coalesce(sum(n) FILTER (WHERE span = 0), 0) AS of_before,
        coalesce(sum(n) FILTER (WHERE span = 1), 0) AS of_after, sum(x) / sum(n) AS pooled, count(*) AS spans, min(n) AS least,
        sum(1e0 / n) AS parts, coalesce(sum(variance), 0e0) AS by_hour, greatest(sum(hours) - 2, 1) AS free
    FROM spans
    GROUP BY topic, "group", measure, error
), tested AS (
    SELECT *, CASE WHEN spans = 2 AND least(pooled, 1 - pooled) * least >= 5
                   THEN two_sided(share_after - share_before, pooled * (1 - pooled) * parts, by_hour, free) END AS p
    FROM measures
), raised AS (
    SELECT *, least(p * count(p) OVER (ORDER BY p DESC NULLS LAST), 1e0) AS at_least FROM tested
), judged AS (
    SELECT *, CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance FROM raised
), valued AS (
    SELECT j.topic, j."group", j.measure, j.error, j.of_before, j.of_after, j.chance, j.measure IN ('failed', 'dead', 'error') AS is_share,
        CASE j.measure WHEN 'lateness_p50' THEN b.lateness_p50 WHEN 'lateness_p99' THEN b.lateness_p99
            WHEN 'duration_p50' THEN b.duration_p50 WHEN 'duration_p99' THEN b.duration_p99 ELSE share_before END AS before,
        CASE j.measure WHEN 'lateness_p50' THEN a.lateness_p50 WHEN 'lateness_p99' THEN a.lateness_p99
            WHEN 'duration_p50' THEN a.duration_p50 WHEN 'duration_p99' THEN a.duration_p99 ELSE share_after END AS after
    FROM judged j
    LEFT JOIN own_limits b ON b.topic = j.topic AND b."group" IS NOT DISTINCT FROM j."group" AND b.span = 0
    LEFT JOIN own_limits a ON a.topic = j.topic AND a."group" IS NOT DISTINCT FROM j."group" AND a.span = 1
    UNION ALL
    SELECT topic, "group", 'attempts', NULL, of_before, of_after, NULL, false, of_before * 3600000e0 / (:before_until - :before_since),
        of_after * 3600000e0 / (:after_until - :after_since)
    FROM judged
    WHERE measure = 'failed'
)
SELECT topic, "group", measure, error, before, after, of_before, of_after, chance,
    CASE WHEN measure = 'attempts' THEN 'not judged'
         WHEN chance IS NULL THEN 'too little'
         WHEN chance >= 0.05 THEN 'same'
         WHEN measure = 'error' AND before = 0 THEN 'new'
         WHEN measure = 'error' AND after = 0 THEN 'gone'
         WHEN is_share AND abs(after - before) < 0.001e0 THEN 'same'
         WHEN NOT is_share AND (abs(after - before) < 5 OR greatest(after, before) < 1.1e0 * least(after, before)) THEN 'same'
         WHEN after > before THEN 'worse'
         ELSE 'better' END AS verdict,
    CASE WHEN before IS NOT NULL AND after IS NOT NULL
         THEN (greatest(before, after, 0e0) + CASE WHEN is_share THEN 0.0005e0 ELSE 1e0 END)
            / (greatest(least(before, after), 0e0) + CASE WHEN is_share THEN 0.0005e0 ELSE 1e0 END) END AS size
FROM valued
