-- error_hours: the failed attempts of each hour, by their class of error and their host.
-- Kept by day.
--
--   day      integer
--   topic    text
--   group    text
--   error    text
--   host     text
--   hour     integer
--   failed   integer
--   first    integer   ms since 1970
--   last     integer
--   last_id  text      the job of the last; the last by name, if several ended in the same ms
SELECT day, topic, "group", error, host_of(consumer) AS host, hour, count(*) AS failed, min(finished) AS first, max(finished) AS last,
    max_by(id, (finished, id)) AS last_id
FROM recent
WHERE has_failed AND error IS NOT NULL
GROUP BY day, topic, "group", error, host_of(consumer), hour
