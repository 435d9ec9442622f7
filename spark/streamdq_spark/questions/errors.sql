-- errors: which errors, on which day?
-- One row for each topic, group, class of error and UTC day. Day: day.
--
--   topic     text
--   group     text
--   error     text
--   day       time
--   failed    integer   attempts that failed with it
--   attempts  integer   all of the day
--   share     number
--   hosts     integer   how many
WITH days AS (
    SELECT topic, "group", day, count(*) AS attempts FROM asked WHERE is_attempt GROUP BY topic, "group", day
), failures AS (
    SELECT topic, "group", error, day, count(*) AS failed, count(DISTINCT host_of(consumer)) AS hosts
    FROM asked
    WHERE has_failed AND error IS NOT NULL
    GROUP BY topic, "group", error, day
)
SELECT f.topic, f."group", f.error, f.day * 86400000 AS day, failed, attempts, failed / attempts AS share, hosts
FROM failures f
JOIN days d ON d.topic = f.topic AND d."group" IS NOT DISTINCT FROM f."group" AND d.day = f.day
