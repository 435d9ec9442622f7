-- worked: each hour in which a consumer worked.
--
--   group         text
--   consumer      text
--   hour          integer   since 1970
--   ended         integer   attempts that ended in it
--   busy_ms       integer   how long attempts ran in it, added up; of each attempt at most the last 48 hours count
--   most_at_once  integer
WITH ran AS (
    SELECT "group", consumer, started, finished, hour AS last, greatest(hour_of(started), hour - 47) AS first
    FROM ended
    WHERE (is_attempt OR event IN ('released', 'reclaimed')) AND consumer IS NOT NULL AND started <= finished
), pieces AS (
    SELECT "group", consumer, started, finished, last, explode(sequence(first, last)) AS hour FROM ran
), cut AS (  -- in ms of the hour; shuffled before each becomes a start and an end
    SELECT /*+ REPARTITION(hour, consumer, "group") */ "group", consumer, hour, greatest(started - hour * 3600000, 0) AS since,
        least(finished - hour * 3600000, 3600000) AS until, CASE WHEN hour = last THEN 1 ELSE 0 END AS ends_here
    FROM pieces
), points AS (  -- in the order of time, an end before a start of the same millisecond
    SELECT "group", consumer, hour, change, CASE WHEN change > 0 THEN 2 * since + 1 ELSE 2 * until END AS moment,
        CASE WHEN change < 0 THEN ends_here ELSE 0 END AS ended, CASE WHEN change < 0 THEN until - since ELSE 0 END AS busy_ms
    FROM cut
    CROSS JOIN (VALUES (1), (-1)) AS changes(change)
), running_at AS (
    SELECT "group", consumer, hour, ended, busy_ms,
        sum(change) OVER (PARTITION BY hour, consumer, "group" ORDER BY moment ROWS UNBOUNDED PRECEDING) AS at_once
    FROM points
)
SELECT "group", consumer, hour, sum(ended) AS ended, sum(busy_ms) AS busy_ms, greatest(max(at_once), 1) AS most_at_once
FROM running_at
GROUP BY "group", consumer, hour
