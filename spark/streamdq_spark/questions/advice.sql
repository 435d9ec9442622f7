-- advice: which TTR and which retry schedule fit what was seen?
-- One row for each topic and group.
--
--   topic            text
--   group            text
--   done             integer   attempts that were done and whose running time is known
--   p50_ms           number    percentiles of that
--   p99_ms           number
--   p999_ms          number
--   max_ms           integer
--   cut_off          integer   attempts that were taken over, or ended with a TimeoutError no sooner than the 99.9th percentile
--   share_cut_off    number
--   ttr_ms           integer   the 99.9th percentile times 2, but at least 10 s more, rounded up to a round figure (Amazon Builders'
--                              Library, Timeouts, retries and backoff with jitter: choose the share of false time-outs that you
--                              accept, then that percentile, and pad it); null with fewer than 1000
--   ttr_verdict      text      ok; too few; cut off: more than 0.1 % were, and no fewer than :min_late, so the figure is
--                              a lower bound
--   waits_ms         numbers   the waits of the schedule's steps, as observed
--   keep_steps       integer   how many of them to keep: the steps at the end go of which it is 95 % sure (upper bound of Wilson's
--                              score interval, 1927) that fewer than 1 % of their attempts succeed
--   retried          integer   attempts at these steps
--   retry_verdict    text      ok; shorten; too few: of no step beyond the kept ones enough was seen to say; no retries
WITH tried AS (
    SELECT topic, "group", event, ran_ms, error = 'TimeoutError' AND has_failed AS timed_out
    FROM asked
    WHERE is_attempt OR event = 'reclaimed'
), limits AS (
    SELECT topic, "group", count(*) AS tried, count(ran_ms) FILTER (WHERE event = 'done') AS done,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY CASE WHEN event = 'done' THEN ran_ms END) AS p50_ms,
        percentile_cont(0.99) WITHIN GROUP (ORDER BY CASE WHEN event = 'done' THEN ran_ms END) AS p99_ms,
        percentile_cont(0.999) WITHIN GROUP (ORDER BY CASE WHEN event = 'done' THEN ran_ms END) AS p999_ms,
        max(CASE WHEN event = 'done' THEN ran_ms END) AS max_ms
    FROM tried
    GROUP BY topic, "group"
), cut AS (
    SELECT t.topic, t."group", count(*) AS cut_off
    FROM tried t
    JOIN limits l ON l.topic = t.topic AND l."group" IS NOT DISTINCT FROM t."group"
    WHERE t.event = 'reclaimed' OR t.timed_out AND t.ran_ms >= l.p999_ms
    GROUP BY t.topic, t."group"
), padded AS (
    SELECT l.*, coalesce(c.cut_off, 0) AS cut_off, l.p999_ms + greatest(l.p999_ms, 10000e0) AS padded_ms
    FROM limits l
    LEFT JOIN cut c ON c.topic = l.topic AND c."group" IS NOT DISTINCT FROM l."group"
), round_figures AS (
    SELECT p.topic, p."group", min(s.seconds) * 1000 AS ttr_ms
    FROM padded p
    JOIN (VALUES (1), (2), (5), (10), (15), (20), (30), (45), (60), (90), (120), (180), (300), (600), (900), (1200), (1800), (2700),
        (3600), (5400), (7200), (10800), (14400), (21600), (43200)) AS s(seconds) ON s.seconds * 1000 >= p.padded_ms
    GROUP BY p.topic, p."group"
), steps AS (
    SELECT topic, "group", step, count(*) FILTER (WHERE is_attempt) AS n, count(*) FILTER (WHERE event = 'done') AS done
    FROM asked
    WHERE step > 0 AND (is_attempt OR event = 'reclaimed')
    GROUP BY topic, "group", step
), waits AS (
    SELECT topic, "group", step, percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_ms) AS wait_ms
    FROM retry_waits
    WHERE by_schedule
    GROUP BY topic, "group", step
), rates AS (
    SELECT s.topic, s."group", s.step, s.n, w.wait_ms, CAST(done AS DOUBLE) / nullif(n, 0) AS rate, 3.8416e0 / nullif(n, 0) AS z2_n
    FROM steps s
    LEFT JOIN waits w ON w.topic = s.topic AND w."group" IS NOT DISTINCT FROM s."group" AND w.step = s.step
), bounds AS (  -- Wilson's, of 95 %
    SELECT topic, "group", step, n, wait_ms,
        coalesce((rate + z2_n / 2 - sqrt(rate * (1 - rate) * z2_n + z2_n * z2_n / 4)) / (1 + z2_n), 0e0) AS lower,
        coalesce((rate + z2_n / 2 + sqrt(rate * (1 - rate) * z2_n + z2_n * z2_n / 4)) / (1 + z2_n), 1e0) AS upper
    FROM rates
), schedules AS (
    SELECT topic, "group", second_of_each(array_agg((step, wait_ms))) AS waits_ms,
        coalesce(max(step) FILTER (WHERE upper >= 0.01e0), 0) AS keep_steps, sum(n) AS retried, max(step) AS last_step,
        max_by(lower, step) AS last_lower
    FROM bounds
    GROUP BY topic, "group"
)
SELECT p.topic, p."group", done, p50_ms, p99_ms, p999_ms, max_ms, cut_off, cut_off / tried AS share_cut_off,
    CASE WHEN done >= 1000 THEN coalesce(r.ttr_ms, CAST(ceil(padded_ms / 86400000) AS BIGINT) * 86400000) END AS ttr_ms,
    CASE WHEN done < 1000 THEN 'too few' WHEN cut_off >= :min_late AND cut_off / tried > 0.001 THEN 'cut off' ELSE 'ok' END AS ttr_verdict,
    s.waits_ms, s.keep_steps, coalesce(s.retried, 0) AS retried,
    CASE WHEN s.topic IS NULL THEN 'no retries' WHEN keep_steps < last_step THEN 'shorten' WHEN last_lower < 0.01e0 THEN 'too few'
         ELSE 'ok' END AS retry_verdict
FROM padded p
LEFT JOIN round_figures r ON r.topic = p.topic AND r."group" IS NOT DISTINCT FROM p."group"
LEFT JOIN schedules s ON s.topic = p.topic AND s."group" IS NOT DISTINCT FROM p."group"
