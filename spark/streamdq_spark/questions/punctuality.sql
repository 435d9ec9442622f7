-- punctuality: did attempts start when they were due? How late, and what that burns of the error budget.
-- One row for each topic and hour in which attempts ended whose lateness is known. Day: hour.
--
--   topic             text
--   hour              time
--   attempts          integer
--   p50_ms            number    percentiles of the lateness: start minus due time
--   p95_ms            number
--   p99_ms            number
--   max_ms            integer
--   within_slo        integer   attempts that started within the SLO
--   share_within_slo  number
--   budget_burn       number    the share of late attempts over the share that may be late: above 1, the error budget is used
--                               up faster than it accrues (Google, The Site Reliability Workbook, chapter 5: burn rate)
WITH hourly AS (
    SELECT topic, hour, count(*) AS attempts, percentile_cont(0.5) WITHIN GROUP (ORDER BY late_ms) AS p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY late_ms) AS p95_ms,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY late_ms) AS p99_ms, max(late_ms) AS max_ms,
        count(*) FILTER (WHERE late_ms <= :slo_ms) AS within_slo
    FROM asked
    WHERE late_ms IS NOT NULL
    GROUP BY topic, hour
)
SELECT topic, hour * 3600000 AS hour, attempts, p50_ms, p95_ms, p99_ms, max_ms, within_slo,
    within_slo / attempts AS share_within_slo, (1 - within_slo / attempts) / (1 - :objective) AS budget_burn
FROM hourly
