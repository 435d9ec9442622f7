-- KEY topic, hour
SELECT topic, hour_of(finished) AS hour, count(*) AS attempts,
    quantile_cont(late, 0.5) AS p50_ms, quantile_cont(late, 0.95) AS p95_ms, quantile_cont(late, 0.99) AS p99_ms,
    max(late) AS max_ms,
    count(*) FILTER (late <= setting('slo_ms')) AS within_slo,
    within_slo / attempts AS share_within_slo,
    (1 - share_within_slo) / (1 - setting('objective')) AS budget_burn
FROM (SELECT topic, finished, started - due AS late FROM asked WHERE ended(event))
WHERE late IS NOT NULL
GROUP BY ALL
