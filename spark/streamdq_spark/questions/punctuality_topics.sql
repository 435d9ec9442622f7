-- punctuality_topics: as punctuality, over the whole time: percentiles can't be computed from those of the hours.
-- One row for each topic.
--
--   topic             text
--   attempts          integer
--   p50_ms            number
--   p95_ms            number
--   p99_ms            number
--   max_ms            integer
--   within_slo        integer
--   share_within_slo  number
--   budget_burn       number
WITH topics AS (
    SELECT topic, count(*) AS attempts, percentile_cont(0.5) WITHIN GROUP (ORDER BY late_ms) AS p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY late_ms) AS p95_ms,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY late_ms) AS p99_ms, max(late_ms) AS max_ms,
        count(*) FILTER (WHERE late_ms <= :slo_ms) AS within_slo
    FROM asked
    WHERE late_ms IS NOT NULL
    GROUP BY topic
)
SELECT topic, attempts, p50_ms, p95_ms, p99_ms, max_ms, within_slo, within_slo / attempts AS share_within_slo,
    (1 - within_slo / attempts) / (1 - :objective) AS budget_burn
FROM topics
