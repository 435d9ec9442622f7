-- KEY group, host, measure
-- ROUNDED usual 9, chance 4
WITH recent AS (
    SELECT topic, "group", finished // days(1) AS day, hour_of(finished) AS hour, host_of(consumer) AS host, event,
        CASE WHEN event = 'done' THEN took(started, finished) END AS took
    FROM lately
    WHERE ended(event) AND hour_of(last_ms) - hour_of(finished) < days(14)
), limits AS (
    SELECT topic, "group", day, quantile_cont(took, 0.9) AS longest FROM recent GROUP BY ALL
), told AS (
    SELECT r.topic, r."group", hour, host, 'failed' AS measure, event <> 'done' AS hit
    FROM recent r
    WHERE host IS NOT NULL
    UNION ALL
    SELECT r.topic, r."group", hour, host, 'slow', took > longest
    FROM recent r
    JOIN limits l ON l.topic = r.topic AND l."group" IS NOT DISTINCT FROM r."group" AND l.day = r.day
    WHERE host IS NOT NULL AND took IS NOT NULL
), own AS (
    SELECT topic, "group", hour, host, measure, count(*) AS n, count(*) FILTER (hit) AS x FROM told GROUP BY ALL
), whole AS (
    SELECT topic, "group", hour, measure, count(*) AS n, count(*) FILTER (hit) AS x FROM told GROUP BY ALL
), strata AS (
    SELECT o."group", o.host, o.measure, o.hour, o.n, o.x, o.n * (w.x - o.x) / (w.n - o.n) AS usual, o.n * w.x / w.n AS expected,
        -- of a hypergeometric distribution
        o.n * (w.x / w.n) * (1 - w.x / w.n) * (w.n - o.n) / (w.n - 1) AS variance
    FROM own o
    JOIN whole w ON w.topic = o.topic AND w."group" IS NOT DISTINCT FROM o."group" AND w.hour = o.hour AND w.measure = o.measure
    WHERE w.n > o.n
), hours AS (
    SELECT "group", host, measure, hour, sum(n) AS n, sum(x) AS x, sum(usual) AS usual, sum(expected) AS expected,
        sum(variance) AS variance
    FROM strata
    GROUP BY ALL
), rows AS (
    SELECT "group", host, measure, sum(n) AS attempts, sum(x) AS seen, sum(usual) AS usual, sum(expected) AS expected,
        sum(variance) AS by_chance, coalesce(var_samp(x - expected) * count(*), 0) AS by_hour, greatest(count(*) - 1, 1) AS free
    FROM hours
    GROUP BY ALL
), tested AS (
    SELECT *, CASE WHEN least(expected, attempts - expected) >= 5 AND by_chance > 0
                   THEN two_sided(seen - expected, by_chance, by_hour, free) END AS p
    FROM rows
), raised AS (
    SELECT *, least(1, p * count(p) OVER (ORDER BY p DESC NULLS LAST)) AS at_least FROM tested
), judged AS (
    SELECT *, CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance FROM raised
)
SELECT "group", host, measure, attempts, seen, usual, chance,
    CASE WHEN chance IS NULL THEN 'too little'
         WHEN chance < 0.05 AND seen >= 1.5 * usual AND seen >= usual + 5 THEN 'bad'
         ELSE 'ok' END AS verdict
FROM judged
