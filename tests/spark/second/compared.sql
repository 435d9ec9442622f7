-- KEY topic, group, measure, error
-- ROUNDED chance 4
WITH attempts AS (
    SELECT topic, "group", hour_of(finished) AS hour, event, CASE WHEN event <> 'done' THEN error END AS error,
        started - due AS lateness, CASE WHEN event = 'done' THEN took(started, finished) END AS duration,
        CASE WHEN finished >= setting('before_since') AND finished < setting('before_until') THEN 0
             WHEN finished >= setting('after_since') AND finished < setting('after_until') THEN 1 END AS span
    FROM asked
    WHERE ended(event) AND span IS NOT NULL
), limits AS (
    SELECT topic, "group", quantile_cont(lateness, 0.5) AS lateness_p50, quantile_cont(lateness, 0.99) AS lateness_p99,
        quantile_cont(duration, 0.5) AS duration_p50, quantile_cont(duration, 0.99) AS duration_p99
    FROM attempts
    GROUP BY ALL
), own_limits AS (
    SELECT topic, "group", span, unnest([
        {measure: 'lateness_p50', time: quantile_cont(lateness, 0.5)}, {measure: 'lateness_p99', time: quantile_cont(lateness, 0.99)},
        {measure: 'duration_p50', time: quantile_cont(duration, 0.5)}, {measure: 'duration_p99', time: quantile_cont(duration, 0.99)}
    ], recursive := true)
    FROM attempts
    GROUP BY topic, "group", span
), hours AS (  -- of so many attempts n, x count
    SELECT a.topic, a."group", span, hour, unnest([
        {measure: 'failed', n: count(*), x: count(*) FILTER (event <> 'done')},
        {measure: 'dead', n: count(*), x: count(*) FILTER (event = 'dead')},
        {measure: 'lateness_p50', n: count(lateness), x: count(*) FILTER (lateness > lateness_p50)},
        {measure: 'lateness_p99', n: count(lateness), x: count(*) FILTER (lateness > lateness_p99)},
        {measure: 'duration_p50', n: count(duration), x: count(*) FILTER (duration > duration_p50)},
        {measure: 'duration_p99', n: count(duration), x: count(*) FILTER (duration > duration_p99)}
    ], recursive := true), NULL AS error
    FROM attempts a
    JOIN limits l ON l.topic = a.topic AND l."group" IS NOT DISTINCT FROM a."group"
    GROUP BY a.topic, a."group", span, hour
), of_errors AS (
    SELECT h.topic, h."group", h.span, h.hour, 'error' AS measure, h.n, coalesce(x.x, 0) AS x, e.error
    FROM (SELECT DISTINCT topic, "group", error FROM attempts WHERE error IS NOT NULL) e
    JOIN hours h ON h.topic = e.topic AND h."group" IS NOT DISTINCT FROM e."group" AND h.measure = 'failed'
    LEFT JOIN (SELECT topic, "group", span, hour, error, count(*) AS x FROM attempts GROUP BY ALL) x
        ON x.topic = e.topic AND x."group" IS NOT DISTINCT FROM e."group" AND x.error = e.error AND x.span = h.span AND x.hour = h.hour
), shares AS (
    SELECT *, sum(x) OVER own / sum(n) OVER own AS share
    FROM (FROM hours UNION ALL BY NAME FROM of_errors)
    WHERE n > 0
    WINDOW own AS (PARTITION BY topic, "group", measure, error, span)
), spans AS (
    SELECT topic, "group", measure, error, span, sum(n) AS n, sum(x) AS x, count(*) AS hours, any_value(share) AS share,
        sum(pow(x - share * n, 2)) / pow(sum(n), 2) * hours / nullif(hours - 1, 0) AS variance
    FROM shares
    GROUP BY topic, "group", measure, error, span
), rows AS (
    SELECT topic, "group", measure, error, any_value(share) FILTER (span = 0) AS share_before, any_value(share) FILTER (span = 1) AS share_after,
        coalesce(sum(n) FILTER (span = 0), 0) AS of_before, coalesce(sum(n) FILTER (span = 1), 0) AS of_after,
        sum(x) / sum(n) AS pooled, count(*) = 2 AND least(pooled, 1 - pooled) * min(n) >= 5 AS enough,
        pooled * (1 - pooled) * sum(1 / n) AS by_chance, coalesce(sum(variance), 0) AS by_hour, greatest(sum(hours) - 2, 1) AS free
    FROM spans
    GROUP BY ALL
), tested AS (
    SELECT *, CASE WHEN enough THEN two_sided(share_after - share_before, by_chance, by_hour, free) END AS p FROM rows
), raised AS (
    SELECT *, least(1, p * count(p) OVER (ORDER BY p DESC NULLS LAST)) AS at_least FROM tested
), judged AS (
    SELECT *, CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance FROM raised
), valued AS (
    SELECT j.topic, j."group", j.measure, j.error, of_before, of_after, chance, j.measure IN ('failed', 'dead', 'error') AS is_share,
        CASE WHEN is_share THEN share_before ELSE b.time END AS before, CASE WHEN is_share THEN share_after ELSE a.time END AS after
    FROM judged j
    LEFT JOIN own_limits b ON b.topic = j.topic AND b."group" IS NOT DISTINCT FROM j."group" AND b.measure = j.measure AND b.span = 0
    LEFT JOIN own_limits a ON a.topic = j.topic AND a."group" IS NOT DISTINCT FROM j."group" AND a.measure = j.measure AND a.span = 1
    UNION ALL
    SELECT topic, "group", 'attempts', NULL, of_before, of_after, NULL, false,
        of_before * 3600000 / (setting('before_until') - setting('before_since')),
        of_after * 3600000 / (setting('after_until') - setting('after_since'))
    FROM judged
    WHERE measure = 'failed'
)
SELECT topic, "group", measure, error, before, after, of_before, of_after, chance,
    CASE WHEN measure = 'attempts' THEN 'not judged'
         WHEN chance IS NULL THEN 'too little'
         WHEN chance >= 0.05 THEN 'same'
         WHEN measure = 'error' AND before = 0 THEN 'new'
         WHEN measure = 'error' AND after = 0 THEN 'gone'
         WHEN is_share AND abs(after - before) < 0.001 THEN 'same'
         WHEN NOT is_share AND (abs(after - before) < 5 OR greatest(after, before) < 1.1 * least(after, before)) THEN 'same'
         WHEN after > before THEN 'worse'
         ELSE 'better' END AS verdict,
    CASE WHEN before IS NOT NULL AND after IS NOT NULL
         THEN (greatest(before, after, 0) + CASE WHEN is_share THEN 0.0005 ELSE 1 END)
            / (greatest(least(before, after), 0) + CASE WHEN is_share THEN 0.0005 ELSE 1 END) END AS size
FROM valued
