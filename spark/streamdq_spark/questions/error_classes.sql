-- error_classes: which classes of errors are new, or spread?
-- One row for each topic, group and class of error, of the days that were asked for and the 14 days before.
--
--   topic    text
--   group    text
--   error    text
--   failed   integer   attempts
--   first    time
--   last     time
--   last_id  text      the last of them, as an example; the last by name, if several ended in the same ms
--   hosts    integer   on how many hosts
--   host     text      the one with most of them; the first by name if several have as many
--   of_host  number    its part
--   before   number    the share of attempts in the seven days before the last seven
--   now      number    in the last seven days, which end with the hour of the last event
--   chance   number    how likely the difference is if nothing changed, all classes together, as in compared; rounded to 4 digits
--   verdict  text      new (none before), spreading, fading, gone, same or too little
WITH on_hosts AS (
    SELECT topic, "group", error, host, sum(failed) AS n, min(first) AS first, max(last) AS last,
        max_by(last_id, (last, last_id)) AS last_id
    FROM error_hours
    GROUP BY topic, "group", error, host
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY topic, "group", error ORDER BY n DESC, host NULLS FIRST) AS place FROM on_hosts
), classes AS (
    SELECT topic, "group", error, sum(n) AS failed, min(first) AS first, max(last) AS last,
        max_by(last_id, (last, last_id)) AS last_id, count(host) AS hosts,
        max(host) FILTER (WHERE place = 1) AS host, max(n) FILTER (WHERE place = 1) AS of_host
    FROM ranked
    GROUP BY topic, "group", error
)
SELECT c.topic, c."group", c.error, c.failed, c.first, c.last, c.last_id, c.hosts, c.host, c.of_host / c.failed AS of_host,
    w.before, w.now, w.chance,
    CASE WHEN w.chance IS NULL THEN 'too little'
         WHEN w.chance >= 0.05 THEN 'same'
         WHEN w.before = 0 THEN 'new'
         WHEN w.now = 0 THEN 'gone'
         WHEN abs(w.now - w.before) < 0.001 THEN 'same'
         WHEN w.now > w.before THEN 'spreading'
         ELSE 'fading' END AS verdict
FROM classes c
LEFT JOIN error_weeks w ON w.topic = c.topic AND w."group" IS NOT DISTINCT FROM c."group" AND w.error = c.error
