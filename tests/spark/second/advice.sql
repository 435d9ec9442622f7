-- KEY topic, group
-- What docs/reference/analytics.md says: TTR of the 99.9th percentile of what was done, steps by Wilson's interval.
WITH tried AS (
    SELECT topic, "group", event, error, CASE WHEN started <= finished THEN finished - started END AS took
    FROM asked
    WHERE ended(event) OR event = 'reclaimed'
), done AS (
    SELECT topic, "group", count(took) AS done, quantile_cont(took, 0.5) AS p50_ms, quantile_cont(took, 0.99) AS p99_ms,
        quantile_cont(took, 0.999) AS p999_ms, max(took) AS max_ms
    FROM tried
    WHERE event = 'done'
    GROUP BY ALL
), ttr AS (
    SELECT t.topic, t."group", coalesce(any_value(d.done), 0) AS done, any_value(d.p50_ms) AS p50_ms,
        any_value(d.p99_ms) AS p99_ms, any_value(d.p999_ms) AS p999_ms, any_value(d.max_ms) AS max_ms,
        count(*) FILTER (
            event = 'reclaimed' OR event IN ('retry', 'dead') AND error = 'TimeoutError' AND took >= d.p999_ms
        ) AS cut_off,
        cut_off / count(*) AS share_cut_off
    FROM tried t
    LEFT JOIN done d ON d.topic = t.topic AND d."group" IS NOT DISTINCT FROM t."group"
    GROUP BY t.topic, t."group"
), round(ms) AS (
    SELECT 1000 * unnest([1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400,
        7200, 10800, 14400, 21600, 43200])
    UNION ALL
    SELECT days(unnest(range(1, 400)))
), retries AS (
    SELECT topic, "group", step, count(*) FILTER (ended(event)) AS n, count(*) FILTER (event = 'done') AS done
    FROM asked
    WHERE step > 0 AND (ended(event) OR event = 'reclaimed')
    GROUP BY ALL
), bounds AS (  -- the two rates p of which (rate - p)² = z² p (1 - p) / n
    SELECT r.topic, r."group", r.step, n,
        (SELECT median(wait_ms) FROM retry_waits w WHERE w.topic = r.topic AND w."group" IS NOT DISTINCT FROM r."group" AND w.step = r.step) AS wait_ms,
        2 * done / nullif(n, 0) + pow(1.96, 2) / nullif(n, 0) AS b,
        1 + pow(1.96, 2) / nullif(n, 0) AS a,
        sqrt(greatest(b * b - 4 * a * pow(done / nullif(n, 0), 2), 0)) AS root,
        coalesce((b - root) / (2 * a), 0) AS lower,
        coalesce((b + root) / (2 * a), 1) AS upper
    FROM retries r
), schedule AS (
    SELECT topic, "group", list(wait_ms ORDER BY step) AS waits_ms,
        coalesce(max(step) FILTER (upper >= 0.01), 0) AS keep_steps, sum(n) AS retried,
        CASE WHEN keep_steps < max(step) THEN 'shorten'
             WHEN arg_max(lower, step) < 0.01 THEN 'too few'
             ELSE 'ok' END AS retry_verdict
    FROM bounds
    GROUP BY ALL
)
SELECT t.topic, t."group", done, p50_ms, p99_ms, p999_ms, max_ms, cut_off, share_cut_off,
    CASE WHEN done >= 1000
         THEN (SELECT min(ms) FROM round WHERE ms >= t.p999_ms + greatest(t.p999_ms, 10000)) END AS ttr_ms,
    CASE WHEN done < 1000 THEN 'too few' WHEN share_cut_off > 0.001 THEN 'cut off' ELSE 'ok' END AS ttr_verdict,
    s.waits_ms, s.keep_steps, coalesce(s.retried, 0) AS retried,
    coalesce(s.retry_verdict, 'no retries') AS retry_verdict
FROM ttr t
LEFT JOIN schedule s ON s.topic = t.topic AND s."group" IS NOT DISTINCT FROM t."group"
