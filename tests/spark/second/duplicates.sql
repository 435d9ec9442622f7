-- KEY topic, group
WITH lives AS (
    SELECT topic, "group", id, created,
        count(*) FILTER (ended(event)) AS attempts, count(*) FILTER (event = 'done') AS done,
        count(*) FILTER (event = 'reclaimed') AS reclaimed,
        count(*) FILTER (event = 'released' AND error IS NULL) AS released
    FROM asked
    GROUP BY ALL
)
SELECT topic, "group", count(*) AS jobs, sum(attempts) AS attempts,
    coalesce(sum(done - 1) FILTER (done > 1), 0) AS done_again, count(*) FILTER (done > 1) AS jobs_done_again,
    sum(reclaimed) AS reclaimed, count(*) FILTER (reclaimed > 0) AS jobs_reclaimed, sum(released) AS released,
    CASE WHEN sum(attempts + reclaimed) > 0 THEN sum(reclaimed) / sum(attempts + reclaimed) END AS share_reclaimed,
    max(reclaimed) AS most_reclaimed,
    CASE WHEN max(reclaimed) > 0 THEN arg_max(id, (reclaimed, id)) END AS most_reclaimed_id
FROM lives
GROUP BY ALL
