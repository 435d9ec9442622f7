-- jobs: the lives of jobs, added up by topic, group and key (null: none), with the one that was taken over most often.
SELECT topic, "group", key, count(*) AS jobs, sum(attempts) AS attempts, sum(failed) AS failed, sum(reclaimed) AS reclaimed,
    sum(released) AS released, sum(worker_ms) AS worker_ms, sum(failed_ms) AS failed_ms, sum(reclaimed_ms) AS reclaimed_ms,
    sum(put_back_ms) AS put_back_ms, sum(body_bytes) AS body_bytes, sum(read_bytes) AS read_bytes,
    count(*) FILTER (WHERE done > 1) AS jobs_done_again, sum(greatest(done - 1, 0)) AS done_again,
    count(*) FILTER (WHERE reclaimed > 0) AS jobs_reclaimed, max(reclaimed) AS most_reclaimed,
    max_by(id, (reclaimed, id)) FILTER (WHERE reclaimed > 0) AS most_reclaimed_id
FROM lives
GROUP BY topic, "group", key
