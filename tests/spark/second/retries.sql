-- KEY topic, group, step
WITH steps AS (
    SELECT topic, "group", step,
        count(*) FILTER (ended(event)) AS attempts, count(*) FILTER (event = 'done') AS done,
        count(*) FILTER (event IN ('retry', 'dead')) AS failed, count(*) FILTER (event = 'dead') AS dead,
        count(*) FILTER (event = 'reclaimed') AS lost
    FROM asked
    WHERE step IS NOT NULL AND (ended(event) OR event = 'reclaimed')
    GROUP BY ALL
), waits AS (
    SELECT topic, "group", step, median(wait_ms) AS wait_ms FROM retry_waits WHERE by_schedule GROUP BY ALL
)
SELECT s.topic, s."group", s.step, w.wait_ms, attempts, done, failed, dead, lost,
    CASE WHEN attempts > 0 THEN done / attempts END AS success_rate,
    CASE WHEN all_done > 0 THEN done / all_done END AS share_of_done,
    CASE WHEN all_done > 0 THEN so_far / all_done END AS done_so_far
FROM (
    SELECT *,
        (SELECT sum(o.done) FROM steps o WHERE o.topic = s.topic AND o."group" IS NOT DISTINCT FROM s."group") AS all_done,
        (SELECT sum(o.done) FROM steps o WHERE o.topic = s.topic AND o."group" IS NOT DISTINCT FROM s."group" AND o.step <= s.step) AS so_far
    FROM steps s
) s
LEFT JOIN waits w ON w.topic = s.topic AND w."group" IS NOT DISTINCT FROM s."group" AND w.step = s.step
