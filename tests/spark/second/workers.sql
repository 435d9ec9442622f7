-- KEY group, consumer, hour
-- An attempt that ends up to two days after the last of the days may have run in them.
WITH ran AS (
    SELECT "group", consumer, started, finished, hour_of(finished) AS last
    FROM history
    WHERE finished >= setting('first_ms') AND finished < setting('end_ms') + days(2)
        AND event IN ('done', 'retry', 'dead', 'released', 'reclaimed')
        AND consumer IS NOT NULL AND started <= finished
), pieces AS (
    SELECT "group", consumer, unnest(generate_series(greatest(hour_of(started), last - 47 * 3600000::BIGINT), last, 3600000)) AS hour,
        greatest(started, hour) AS since, least(finished, hour + 3600000) AS until, hour = last AS ends_here
    FROM ran
), moments AS (  -- one that ends makes room for one that starts in the same millisecond
    SELECT "group", consumer, hour, since AS moment, 1 AS change FROM pieces WHERE since < until
    UNION ALL
    SELECT "group", consumer, hour, until, -1 FROM pieces WHERE since < until
), running AS (
    SELECT "group", consumer, hour,
        sum(change) OVER (PARTITION BY "group", consumer, hour ORDER BY moment, change ROWS UNBOUNDED PRECEDING) AS running
    FROM moments
), most AS (
    SELECT "group", consumer, hour, max(running) AS most FROM running GROUP BY ALL
), hours AS (
    SELECT p."group", p.consumer, p.hour, count(*) FILTER (ends_here) AS ended,
        sum(until - since) AS busy_ms, greatest(coalesce(any_value(m.most), 1), 1) AS most_at_once
    FROM pieces p
    LEFT JOIN most m ON p."group" IS NOT DISTINCT FROM m."group" AND p.consumer = m.consumer AND p.hour = m.hour
    GROUP BY p."group", p.consumer, p.hour
)
SELECT "group", consumer, hour, ended, busy_ms, most_at_once,
    max(most_at_once) OVER (PARTITION BY "group", consumer, hour // 86400000) AS slots,
    busy_ms / (slots * 3600000::BIGINT) AS utilisation,
    max(busy_ms) OVER (PARTITION BY "group", hour) / nullif(avg(busy_ms) OVER (PARTITION BY "group", hour), 0) AS skew
FROM hours
QUALIFY hour >= setting('first_ms') AND hour < setting('end_ms')
