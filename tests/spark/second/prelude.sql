-- What all of them ask: `history` has the events of the dump, times in ms; `asked` those of the days that are asked for.
CREATE MACRO setting(name) AS getvariable(name);
CREATE MACRO days(n) AS n * 86400000::BIGINT;
CREATE MACRO hour_of(ms) AS ms - ms % 3600000;
CREATE MACRO ended(event) AS event IN ('done', 'retry', 'dead');

CREATE VIEW asked AS
SELECT * FROM history WHERE finished >= setting('first_ms') AND finished < setting('end_ms');

-- Each attempt that came to an end after a failure, and how long it had to wait by the schedule: from the failure to the
-- due time. Between the two there was nothing else of the job in the group.
CREATE VIEW retry_waits AS
SELECT topic, "group", step, finished, due - failed_at AS wait_ms
FROM (
    SELECT *, lag(event) OVER job AS before, lag(step) OVER job AS step_before, lag(finished) OVER job AS failed_at
    FROM asked
    WHERE attempt > 1 OR event = 'retry'
    WINDOW job AS (PARTITION BY topic, id, created, "group" ORDER BY entry_ms, entry_number)
)
WHERE ended(event) AND due IS NOT NULL AND before = 'retry' AND step = step_before + 1;

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
