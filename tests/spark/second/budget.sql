-- KEY topic
WITH bounds AS (
    SELECT CASE WHEN setting('goes_on') THEN setting('end_ms') // 3600000 - 1 ELSE (SELECT hour FROM present) END AS last
), recent AS (
    SELECT topic, last - moment AS age, attempts, late FROM counted, bounds WHERE last - moment BETWEEN 0 AND 671
), burning AS (
    SELECT topic, (max(age) + 1) / 24 AS days, sum(attempts) AS attempts, sum(late) AS late,
        1 - setting('objective') AS allowed,
        sum(late) FILTER (age < 1) AS late_1h, sum(late) FILTER (age < 6) AS late_6h, sum(late) FILTER (age < 72) AS late_3d,
        late_1h / nullif(sum(attempts) FILTER (age < 1), 0) / allowed AS burn_1h,
        late_6h / nullif(sum(attempts) FILTER (age < 6), 0) / allowed AS burn_6h,
        late_3d / nullif(sum(attempts) FILTER (age < 72), 0) / allowed AS burn_3d
    FROM recent
    GROUP BY topic
)
SELECT topic, days, attempts, late, 1 - late / attempts AS on_time, late / attempts / allowed AS spent, 1 - spent AS "left",
    burn_1h, burn_6h, burn_3d,
    CASE WHEN late_1h >= 5 AND burn_1h >= 0.02 * 672 THEN 'page'
         WHEN late_6h >= 5 AND least(burn_6h, coalesce(burn_1h, 0)) >= 0.05 * 672 / 6 THEN 'page'
         WHEN late_3d >= 5 AND least(burn_3d, coalesce(burn_6h, 0)) >= 0.1 * 672 / 72 THEN 'ticket'
         ELSE 'none' END AS alert
FROM burning
WHERE attempts > 0
