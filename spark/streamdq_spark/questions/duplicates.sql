-- duplicates: was work done twice, or lost by its consumer?
-- One row for each topic and group.
--
--   topic              text
--   group              text
--   jobs               integer   lives of jobs
--   attempts           integer
--   done_again         integer   ends as done beyond the first of the same life and group
--   jobs_done_again    integer
--   reclaimed          integer   attempts that were taken over because their TTR passed
--   jobs_reclaimed     integer
--   released           integer   handed back by a consumer that stopped, or lost with one before they were started
--   share_reclaimed    number    of all that was started
--   most_reclaimed     integer   of one job
--   most_reclaimed_id  text      its id
WITH summed AS (
    SELECT topic, "group", sum(jobs) AS jobs, sum(attempts) AS attempts, sum(done_again) AS done_again,
        sum(jobs_done_again) AS jobs_done_again, sum(reclaimed) AS reclaimed, sum(jobs_reclaimed) AS jobs_reclaimed,
        sum(released) AS released
    FROM jobs
    GROUP BY topic, "group"
), taken_over AS (
    SELECT topic, "group", id, count(*) AS times FROM asked WHERE event = 'reclaimed' GROUP BY created, id, topic, "group"
), most AS (
    SELECT topic, "group", max(times) AS times, max_by(id, (times, id)) AS id FROM taken_over GROUP BY topic, "group"
)
SELECT s.topic, s."group", jobs, attempts, done_again, jobs_done_again, reclaimed, jobs_reclaimed, released,
    share(reclaimed, attempts + reclaimed) AS share_reclaimed, coalesce(m.times, 0) AS most_reclaimed, m.id AS most_reclaimed_id
FROM summed s
LEFT JOIN most m ON m.topic = s.topic AND m."group" IS NOT DISTINCT FROM s."group"
