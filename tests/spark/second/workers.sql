-- KEY group, consumer, hour
-- An attempt that ends up to two days after the last of the days may have run in them.
SELECT "group", consumer, hour, ended, busy_ms, most_at_once,
    max(most_at_once) OVER (PARTITION BY "group", consumer, hour // 86400000) AS slots,
    busy_ms / (slots * 3600000::BIGINT) AS utilisation,
    max(busy_ms) OVER (PARTITION BY "group", hour) / nullif(avg(busy_ms) OVER (PARTITION BY "group", hour), 0) AS skew
FROM worked(setting('first_ms'), setting('end_ms') + days(2))
QUALIFY hour >= setting('first_ms') AND hour < setting('end_ms')
