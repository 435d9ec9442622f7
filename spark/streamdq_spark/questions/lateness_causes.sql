-- lateness_causes: did late jobs wait for the mover, or for a worker? And how long did retries have to wait?
-- One row for each topic and hour in which the attempts ended. Day: hour.
--
--   topic      text
--   hour       time
--   attempts   integer   whose lateness is known
--   late_ms    integer   their lateness, added up; one that started early adds nothing
--   mover_ms   integer   what of it had passed when the jobs were moved to the ready stream
--   worker_ms  integer   the rest, in which they waited for a worker
--   retries    integer   attempts after a failure
--   retry_ms   integer   how long these had to wait before they were due, which is no lateness
WITH waited AS (
    SELECT topic, hour, greatest(late_ms, 0) AS late_ms,
        CASE WHEN moved IS NULL THEN 0 ELSE greatest(least(moved - due, late_ms), 0) END AS mover_ms
    FROM asked
    WHERE late_ms IS NOT NULL
), both_kinds AS (
    SELECT topic, hour, 1 AS attempts, late_ms, mover_ms, 0 AS retries, 0 AS retry_ms FROM waited
    UNION ALL
    SELECT topic, hour, 0, 0, 0, 1, greatest(wait_ms, 0) FROM retry_waits
)
SELECT topic, hour * 3600000 AS hour, sum(attempts) AS attempts, sum(late_ms) AS late_ms, sum(mover_ms) AS mover_ms,
    sum(late_ms) - sum(mover_ms) AS worker_ms, sum(retries) AS retries, sum(retry_ms) AS retry_ms
FROM both_kinds
GROUP BY topic, hour
