-- KEY topic, group, error
-- ROUNDED chance 4
WITH attempts AS (
    SELECT *, (hour_of(last_ms) - hour_of(finished)) // days(7) AS age FROM lately WHERE ended(event)
), failures AS (
    SELECT *, host_of(consumer) AS host FROM attempts WHERE event <> 'done' AND error IS NOT NULL
), classes AS (
    SELECT topic, "group", error, count(*) AS failed, min(finished) AS first, max(finished) AS last,
        arg_max(id, (finished, entry_ms, entry_number, id)) AS last_id, count(DISTINCT host) AS hosts
    FROM failures
    GROUP BY ALL
), most AS (
    SELECT topic, "group", error, host, count(*) AS of_host
    FROM failures
    GROUP BY topic, "group", error, host
    QUALIFY row_number() OVER (PARTITION BY topic, "group", error ORDER BY of_host DESC, host NULLS FIRST) = 1
), hours AS (
    SELECT topic, "group", age, hour_of(finished) AS hour, count(*) AS n FROM attempts WHERE age < 2 GROUP BY ALL
), hits AS (
    SELECT topic, "group", error, hour_of(finished) AS hour, count(*) AS x FROM failures WHERE age < 2 GROUP BY ALL
), counted AS (  -- each hour of the topic and group, also one without the error
    SELECT h.topic, h."group", f.error, h.age, h.n, coalesce(hits.x, 0) AS x
    FROM (SELECT DISTINCT topic, "group", error FROM hits) f
    JOIN hours h ON h.topic = f.topic AND h."group" IS NOT DISTINCT FROM f."group"
    LEFT JOIN hits ON hits.topic = f.topic AND hits."group" IS NOT DISTINCT FROM f."group"
        AND hits.error = f.error AND hits.hour = h.hour
), shares AS (
    SELECT *, sum(x) OVER week / sum(n) OVER week AS share FROM counted WINDOW week AS (PARTITION BY topic, "group", error, age)
), weeks AS (
    SELECT topic, "group", error, age, sum(n) AS n, sum(x) AS x, count(*) AS hours, any_value(share) AS share,
        sum(pow(x - share * n, 2)) / pow(sum(n), 2) * hours / nullif(hours - 1, 0) AS variance
    FROM shares
    GROUP BY topic, "group", error, age
), compared AS (
    SELECT topic, "group", error, any_value(share) FILTER (age = 1) AS before, any_value(share) FILTER (age = 0) AS now,
        sum(x) / sum(n) AS pooled, count(*) = 2 AND least(pooled, 1 - pooled) * min(n) >= 5 AS enough,
        pooled * (1 - pooled) * sum(1 / n) AS by_chance, coalesce(sum(variance), 0) AS by_hour, greatest(sum(hours) - 2, 1) AS free
    FROM weeks
    GROUP BY ALL
), tested AS (
    SELECT topic, "group", error, before, now,
        CASE WHEN enough THEN two_sided(now - before, by_chance, by_hour, free) END AS p
    FROM compared
), raised AS (
    SELECT *, least(1, p * count(p) OVER (ORDER BY p DESC NULLS LAST)) AS at_least FROM tested
), judged AS (
    SELECT *, CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance FROM raised
)
SELECT c.topic, c."group", c.error, c.failed, first, last, last_id, hosts, m.host, m.of_host / c.failed AS of_host,
    j.before, j.now, j.chance,
    CASE WHEN chance IS NULL THEN 'too little'
         WHEN chance >= 0.05 THEN 'same'
         WHEN before = 0 THEN 'new'
         WHEN now = 0 THEN 'gone'
         WHEN abs(now - before) < 0.001 THEN 'same'
         WHEN now > before THEN 'spreading'
         ELSE 'fading' END AS verdict
FROM classes c
JOIN most m ON m.topic = c.topic AND m."group" IS NOT DISTINCT FROM c."group" AND m.error = c.error
LEFT JOIN judged j ON j.topic = c.topic AND j."group" IS NOT DISTINCT FROM c."group" AND j.error = c.error
