-- KEY topic, group, reason, error
WITH letters AS (
    SELECT *, lead(event) OVER (PARTITION BY topic, id, created, "group" ORDER BY entry_ms, entry_number) AS next
    FROM asked
    WHERE event IN ('dead', 'kicked')
)
SELECT l.topic, l."group", reason, error, count(*) AS dead,
    count(*) FILTER (next = 'kicked') AS kicked,
    count(*) / any_value(b.dead) AS share,
    max(attempt) AS most_attempts, min(finished) AS first, max(finished) AS last,
    arg_max(id, (entry_ms, entry_number, id)) AS last_id
FROM letters l
JOIN (SELECT topic, "group", count(*) AS dead FROM asked WHERE event = 'dead' GROUP BY ALL) b ON b.topic = l.topic AND b."group" IS NOT DISTINCT FROM l."group"
WHERE event = 'dead'
GROUP BY l.topic, l."group", reason, error
