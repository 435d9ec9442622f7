-- KEY topic, group, error, day
WITH days AS (
    SELECT topic, "group", finished - finished % days(1) AS day, count(*) AS attempts
    FROM asked
    WHERE ended(event)
    GROUP BY ALL
), failures AS (
    SELECT topic, "group", error, finished - finished % days(1) AS day, count(*) AS failed,
        count(DISTINCT regexp_replace(consumer, '-[0-9]+-[0-9a-z]{10}$', '')) AS hosts
    FROM asked
    WHERE event IN ('retry', 'dead') AND error IS NOT NULL
    GROUP BY ALL
)
SELECT f.topic, f."group", error, epoch_ms(f.day) AS day, failed, attempts, failed / attempts AS share, hosts
FROM failures f
JOIN days d ON d.topic = f.topic AND d."group" IS NOT DISTINCT FROM f."group" AND d.day = f.day
