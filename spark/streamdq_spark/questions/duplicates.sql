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
SELECT topic, "group", sum(jobs) AS jobs, sum(attempts) AS attempts, sum(done_again) AS done_again,
    sum(jobs_done_again) AS jobs_done_again, sum(reclaimed) AS reclaimed, sum(jobs_reclaimed) AS jobs_reclaimed,
    sum(released) AS released, share(sum(reclaimed), sum(attempts) + sum(reclaimed)) AS share_reclaimed,
    max(most_reclaimed) AS most_reclaimed,
    max_by(most_reclaimed_id, (most_reclaimed, most_reclaimed_id)) FILTER (WHERE most_reclaimed > 0) AS most_reclaimed_id
FROM jobs
GROUP BY topic, "group"
