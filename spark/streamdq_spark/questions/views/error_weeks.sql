-- error_weeks: how the shares of the classes of errors changed from one week to the next, and how likely that is by chance.
--
--   topic, group, error
--   before  number   the share of attempts in the seven days before the last seven
--   now     number   in the last seven days
--   chance  number   of such a difference if nothing changed, all classes together (Holm, A Simple Sequentially Rejective Multiple
--                    Test Procedure, 1979), to 4 digits; null: too little
WITH hours AS (  -- the last two weeks
    SELECT topic, "group", hour, CASE WHEN :last_hour - hour < 168 THEN 1 ELSE 0 END AS span, sum(attempts) AS n
    FROM tried
    WHERE :last_hour - hour < 336
    GROUP BY topic, "group", hour
), hits AS (
    SELECT topic, "group", error, hour, sum(failed) AS x
    FROM error_hours
    WHERE :last_hour - hour < 336
    GROUP BY topic, "group", error, hour
), errors AS (
    SELECT DISTINCT topic, "group", error FROM hits
), counted AS (  -- each hour of the topic and group, also one without the error
    SELECT h.topic, h."group", e.error, h.span, h.n, coalesce(x.x, 0) AS x
    FROM errors e
    JOIN hours h ON h.topic = e.topic AND h."group" IS NOT DISTINCT FROM e."group"
    LEFT JOIN hits x ON x.topic = e.topic AND x."group" IS NOT DISTINCT FROM e."group" AND x.error = e.error AND x.hour = h.hour
), shares AS (
    SELECT *, sum(x) OVER own / sum(n) OVER own AS share FROM counted WINDOW own AS (PARTITION BY topic, "group", error, span)
), spans AS (  -- with the variance of the share, of hours as clusters
    SELECT topic, "group", error, span, sum(n) AS n, sum(x) AS x, count(*) AS hours, max(share) AS share,
        sum(pow(x - share * n, 2)) / pow(sum(n), 2) * count(*) / nullif(count(*) - 1, 0) AS variance
    FROM shares
    GROUP BY topic, "group", error, span
), classes AS (
    SELECT topic, "group", error, max(share) FILTER (WHERE span = 0) AS before, max(share) FILTER (WHERE span = 1) AS now,
        sum(x) / sum(n) AS pooled, count(*) AS spans, min(n) AS least, sum(1e0 / n) AS parts,
        coalesce(sum(variance), 0e0) AS by_hour, greatest(sum(hours) - 2, 1) AS free
    FROM spans
    GROUP BY topic, "group", error
), tested AS (
    SELECT topic, "group", error, before, now,
        CASE WHEN spans = 2 AND least(pooled, 1 - pooled) * least >= 5
             THEN two_sided(now - before, pooled * (1 - pooled) * parts, by_hour, free) END AS p
    FROM classes
), raised AS (
    SELECT *, least(p * count(p) OVER (ORDER BY p DESC NULLS LAST), 1e0) AS at_least FROM tested
)
SELECT topic, "group", error, before, now,
    CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance
FROM raised
