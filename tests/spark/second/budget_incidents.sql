-- KEY topic, first_hour
WITH bounds AS (
    SELECT CASE WHEN setting('goes_on') THEN setting('end_ms') // 3600000 - 1 ELSE (SELECT hour FROM present) END AS last
), recent AS (
    SELECT topic, moment, attempts, late, sum(attempts) OVER (PARTITION BY topic) * (1 - setting('objective')) AS budget
    FROM counted, bounds
    WHERE last - moment BETWEEN 0 AND 671
), bad AS (
    SELECT *, coalesce(moment - lag(moment) OVER (PARTITION BY topic ORDER BY moment) > 2, true) AS begins
    FROM recent
    WHERE late > attempts * (1 - setting('objective'))
), numbered AS (
    SELECT *, count(*) FILTER (begins) OVER (PARTITION BY topic ORDER BY moment) AS number FROM bad
)
SELECT topic, epoch_ms(min(moment) * 3600000) AS first_hour, epoch_ms(max(moment) * 3600000) AS last_hour, count(*) AS hours,
    sum(attempts) AS attempts, sum(late) AS late, sum(late) / any_value(budget) AS spent
FROM numbered
GROUP BY topic, number
HAVING sum(late) >= 5 AND sum(late) / any_value(budget) >= 0.01
