-- pool_workers: the workers of each pool, in the last 14 days.
--
--   pool          integer
--   concurrency   number    the median of the most each ran at once, of attempts that ended on the same day, by attempts
--   workers_seen  number    how many worked in an hour of the last day, the median
WITH members AS (
    SELECT DISTINCT p.pool, w."group", w.consumer
    FROM worked_on w
    JOIN pools p ON p.topic = w.topic AND p."group" IS NOT DISTINCT FROM w."group"
), hours AS (
    SELECT m.pool, w.consumer, w.hour, w.ended, w.most_at_once
    FROM worker_hours w
    JOIN members m ON m."group" IS NOT DISTINCT FROM w."group" AND m.consumer = w.consumer
    WHERE w.hour > :last_hour - 336 AND w.hour < :end_hour
), most AS (
    SELECT pool, consumer, max(most_at_once) AS most, sum(ended) AS ended FROM hours GROUP BY pool, consumer
), ranked AS (
    SELECT pool, most, sum(ended) OVER (PARTITION BY pool ORDER BY most, consumer ROWS UNBOUNDED PRECEDING) AS up_to,
        sum(ended) OVER (PARTITION BY pool) AS of
    FROM most
), middles AS (
    SELECT pool,
        (min(most) FILTER (WHERE up_to > floor((of - 1) / 2)) + min(most) FILTER (WHERE up_to > ceil((of - 1) / 2))) / 2 AS concurrency
    FROM ranked
    GROUP BY pool
), there AS (
    SELECT pool, hour, count(DISTINCT consumer) AS n FROM hours WHERE hour > :last_hour - 24 GROUP BY pool, hour
), seen AS (
    SELECT pool, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS workers_seen FROM there GROUP BY pool
)
SELECT m.pool, m.concurrency, s.workers_seen FROM middles m LEFT JOIN seen s ON s.pool = m.pool
