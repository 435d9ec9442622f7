-- time_to_finish: how long until a job is done?
-- One row for each scope, topic and group. Jobs of which it is not known when they were created are left out.
--
--   scope             text      group, or job: the job as a whole, finished when every group seen has done it
--   topic             text
--   group             text      null for jobs as a whole
--   jobs              integer   that finished
--   total_p50_ms      number    from when it was created to the last time that it was done
--   total_p95_ms      number
--   total_p99_ms      number
--   total_max_ms      integer
--   after_due_jobs    integer   those of them whose first attempts were seen, as a retry has a due time of its own
--   after_due_p50_ms  number    from the first due time
--   after_due_p95_ms  number
--   after_due_p99_ms  number
--   after_due_max_ms  integer
WITH known AS (
    SELECT topic, "group", id, created, CASE WHEN event = 'done' THEN finished END AS done_at,
        CASE WHEN event <> 'kicked' AND attempt <= 1 THEN due END AS first_due
    FROM asked
    WHERE created IS NOT NULL
), queues AS (
    SELECT DISTINCT topic, "group" FROM asked
), shared AS (  -- topics of several groups
    SELECT topic FROM queues GROUP BY topic HAVING count(*) > 1
), both_scopes AS (
    SELECT 'group' AS scope, topic, "group", id, created, done_at, first_due FROM known
    UNION ALL
    SELECT /*+ BROADCAST(s) */ 'job', k.topic, "group", id, created, done_at, first_due
    FROM known k
    JOIN shared s ON s.topic = k.topic
), lives AS (
    SELECT scope, topic, "group", id, created, max(done_at) AS done_at,
        min(first_due) AS first_due  -- null: the first attempt was not seen
    FROM (SELECT /*+ REPARTITION(id) */ * FROM both_scopes) AS apart  -- as in `jobs`
    GROUP BY created, id, scope, topic, "group"
), whole AS (
    SELECT topic, CASE WHEN count(done_at) = count(*) THEN max(done_at) END - created AS total,
        CASE WHEN count(done_at) = count(*) THEN max(done_at) END
            - CASE WHEN count(first_due) = count(*) THEN min(first_due) END AS after_due
    FROM lives
    WHERE scope = 'job'
    GROUP BY created, id, topic
), spans AS (
    SELECT scope, topic, "group", done_at - created AS total, done_at - first_due AS after_due FROM lives WHERE scope = 'group'
    UNION ALL
    SELECT 'job', topic, NULL, total, after_due FROM whole
), measured AS (
    SELECT scope, topic, "group", count(total) AS jobs, percentile_cont(0.5) WITHIN GROUP (ORDER BY total) AS total_p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY total) AS total_p95_ms,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY total) AS total_p99_ms, max(total) AS total_max_ms,
        count(after_due) AS after_due_jobs, percentile_cont(0.5) WITHIN GROUP (ORDER BY after_due) AS after_due_p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY after_due) AS after_due_p95_ms,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY after_due) AS after_due_p99_ms, max(after_due) AS after_due_max_ms
    FROM spans
    WHERE total IS NOT NULL
    GROUP BY scope, topic, "group"
)  -- where there is one group, its jobs are jobs as a whole
SELECT scopes.name AS scope, topic, CASE WHEN scopes.name = 'group' THEN "group" END AS "group", jobs, total_p50_ms, total_p95_ms,
    total_p99_ms, total_max_ms, after_due_jobs, after_due_p50_ms, after_due_p95_ms, after_due_p99_ms, after_due_max_ms
FROM measured
CROSS JOIN (VALUES ('group'), ('job')) AS scopes(name)
WHERE scopes.name = scope OR scopes.name = 'job' AND topic NOT IN (SELECT topic FROM shared)
