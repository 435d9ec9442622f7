-- worker_hours: each hour in which a consumer worked on attempts that ended on the day of the hour.
-- Kept by day.
--
--   day           integer
--   group         text
--   consumer      text
--   hour          integer
--   ended         integer   attempts that ended in it
--   most_at_once  integer
WITH ran AS (
    SELECT day, "group", consumer, started, finished, hour AS last, greatest(hour_of(started), day * 24) AS first
    FROM lately
    WHERE (is_attempt OR event IN ('released', 'reclaimed')) AND consumer IS NOT NULL AND started <= finished
), pieces AS (  -- shuffled before each becomes a start and an end
    SELECT /*+ REPARTITION(hour, consumer, "group") */ day, "group", consumer, started, finished, last,
        explode(sequence(first, last)) AS hour
    FROM ran
), points AS (  -- in the order of time, an end before a start of the same millisecond
    SELECT day, "group", consumer, hour, change, CASE WHEN change < 0 AND hour = last THEN 1 ELSE 0 END AS ended,
        CASE WHEN change > 0 THEN 2 * greatest(started - hour * 3600000, 0) + 1 ELSE 2 * least(finished - hour * 3600000, 3600000)
        END AS moment
    FROM pieces
    CROSS JOIN (VALUES (1), (-1)) AS changes(change)
), running_at AS (
    SELECT day, "group", consumer, hour, ended,
        sum(change) OVER (PARTITION BY hour, consumer, "group" ORDER BY moment ROWS UNBOUNDED PRECEDING) AS at_once
    FROM points
)
SELECT day, "group", consumer, hour, sum(ended) AS ended, greatest(max(at_once), 1) AS most_at_once
FROM running_at
GROUP BY day, "group", consumer, hour
