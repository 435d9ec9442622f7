-- What all of them ask: `history` has the events of the dump, times in ms; `asked` those of the days that are asked for.
CREATE MACRO setting(name) AS getvariable(name);
CREATE MACRO days(n) AS n * 86400000::BIGINT;
CREATE MACRO hour_of(ms) AS ms - ms % 3600000;
CREATE MACRO ended(event) AS event IN ('done', 'retry', 'dead');

CREATE MACRO host_of(consumer) AS regexp_replace(consumer, '-[0-9]+-[0-9a-z]{10}$', '');
CREATE MACRO took(started, finished) AS CASE WHEN started <= finished THEN finished - started END;

CREATE VIEW asked AS
SELECT * FROM history WHERE finished >= setting('first_ms') AND finished < setting('end_ms');

-- And of the fourteen days before.
CREATE VIEW lately AS
SELECT *, max(finished) OVER () AS last_ms
FROM history
WHERE finished >= setting('first_ms') - days(14) AND finished < setting('end_ms');

-- Each attempt that came to an end after a failure, and how long it had to wait, from the failure to the due time: by the
-- next step of the schedule, or at the same step, where the handler told how long. Between the two there was nothing else of
-- the job in the group.
CREATE VIEW retry_waits AS
SELECT topic, "group", step, finished, due - failed_at AS wait_ms, step > step_before AS by_schedule
FROM (
    SELECT *, lag(event) OVER job AS before, lag(step) OVER job AS step_before, lag(finished) OVER job AS failed_at
    FROM asked
    WHERE attempt > 1 OR event = 'retry'
    WINDOW job AS (PARTITION BY topic, id, created, "group" ORDER BY entry_ms, entry_number)
)
WHERE ended(event) AND due IS NOT NULL AND before = 'retry' AND step IN (step_before, step_before + 1);

-- What happened in each hour, as far back as any question looks; numbers of hours since 1970.
CREATE TABLE counted AS
SELECT topic, finished // 3600000 AS moment, count(*) FILTER (ended(event)) AS attempts,
    count(*) FILTER (event = 'done') AS done, count(*) FILTER (event IN ('retry', 'dead')) AS failed,
    count(*) FILTER (ended(event) AND started - due > setting('slo_ms')) AS late
FROM history
WHERE finished >= setting('first_ms') - days(72) AND finished < setting('end_ms')
GROUP BY ALL;

-- The hour of the last event.
CREATE VIEW present AS SELECT coalesce(max(moment), 0) AS hour FROM counted;
-- What the clocks of the zone show in an hour, counted in the same way.
CREATE MACRO shown(moment) AS CAST(floor(epoch(timezone(setting('tz'), to_timestamp(moment * 3600))) / 3600) AS BIGINT);

-- The complement of the error function, for x >= 0: of x, exp(-x²) times the sum of x^(2n + 1) / gamma(n + 3/2) is the
-- error function (Abramowitz and Stegun, 7.1.6).
CREATE MACRO erfc(x) AS CASE WHEN x = 0 THEN 1 WHEN x > 6 THEN 0
    ELSE 1 - list_sum(list_transform(range(200), lambda n: exp((2 * n + 1) * ln(x) - lgamma(n + 1.5) - x * x))) END;
-- Where the normal distribution has so much, by Newton's method, which comes from below for half and more.
CREATE MACRO normal_quantile(share) AS list_reduce(range(100),
    lambda x, n: x + (share - 1 + erfc(x / sqrt(2)) / 2) * sqrt(2 * pi()) * exp(x * x / 2), 0.0::DOUBLE);
-- How likely it is to be so far off by chance alone, by two variances: the normal distribution, or, if that of hours as
-- clusters is the larger one, Student's by Wallace's approximation.
CREATE MACRO student(z, free) AS sqrt(free * ln(1 + z * z / free)) * (8 * free + 1) / (8 * free + 3);
CREATE MACRO two_sided(off, by_chance, by_hour, free) AS CASE
    WHEN by_hour > by_chance THEN erfc(student(abs(off) / sqrt(by_hour), free) / sqrt(2))
    ELSE erfc(abs(off) / sqrt(by_chance) / sqrt(2)) END;
-- By group and consumer, each hour in which it worked: what ended in it, how long attempts ran, and the most at once, also of
-- those that ended on the day of the hour.
CREATE MACRO worked(since, until) AS TABLE
WITH ran AS (
    SELECT "group", consumer, started, finished, hour_of(finished) AS last
    FROM history
    WHERE finished >= since AND finished < until
        AND event IN ('done', 'retry', 'dead', 'released', 'reclaimed')
        AND consumer IS NOT NULL AND started <= finished
), pieces AS (
    SELECT "group", consumer, unnest(generate_series(greatest(hour_of(started), last - 47 * 3600000::BIGINT), last, 3600000)) AS hour,
        greatest(started, hour) AS begun, least(finished, hour + 3600000) AS over, hour = last AS ends_here,
        hour // days(1) = last // days(1) AS of_day
    FROM ran
), moments AS (  -- one that ends makes room for one that starts in the same millisecond
    SELECT "group", consumer, hour, of_day, begun AS moment, 1 AS change FROM pieces WHERE begun < over
    UNION ALL
    SELECT "group", consumer, hour, of_day, over, -1 FROM pieces WHERE begun < over
), running AS (
    SELECT "group", consumer, hour, sum(change) OVER so_far AS running, sum(change) FILTER (of_day) OVER so_far AS of_day
    FROM moments
    WINDOW so_far AS (PARTITION BY "group", consumer, hour ORDER BY moment, change ROWS UNBOUNDED PRECEDING)
), most AS (
    SELECT "group", consumer, hour, max(running) AS most, max(of_day) AS most_of_day FROM running GROUP BY ALL
)
SELECT p."group", p.consumer, p.hour, count(*) FILTER (ends_here) AS ended,
    sum(over - begun) AS busy_ms, greatest(coalesce(any_value(m.most), 1), 1) AS most_at_once,
    CASE WHEN bool_or(of_day) THEN greatest(coalesce(any_value(m.most_of_day), 1), 1) END AS most_of_day
FROM pieces p
LEFT JOIN most m ON p."group" IS NOT DISTINCT FROM m."group" AND p.consumer = m.consumer AND p.hour = m.hour
GROUP BY p."group", p.consumer, p.hour;
