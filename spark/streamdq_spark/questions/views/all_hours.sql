-- all_hours: of topics that have busy days, the complete hours from the one after the first event on; one without events counts 0.
-- In a long silence, only those that any table looks at: within 94 days after the last event before it, and before the next one.
--
--   topic     text
--   hour      integer
--   clock     integer   the hour as the clocks of the time zone show it
--   before    integer   the last earlier hour in which the topic had events
--   attempts  integer
--   firsts    integer   first attempts
--   done      integer
--   failed    integer   of the first attempts: a job that fails again and again is one failure
--   late      integer
WITH followed AS (
    SELECT topic, hour AS before, lead(hour) OVER (PARTITION BY topic ORDER BY hour) AS next
    FROM hours
    WHERE hour < :open_hour AND topic IN (SELECT topic FROM busy_days)
), gaps AS (
    SELECT topic, before, coalesce(next, :open_hour - 1) AS next FROM followed WHERE before < :open_hour - 1
), spans AS (
    SELECT topic, before, explode(sequence(before + 1, least(next, before + 94 * 24))) AS hour FROM gaps
    UNION ALL
    SELECT topic, before, explode(sequence(greatest(next - 94 * 24, before + 94 * 24 + 1), next)) AS hour
    FROM gaps
    WHERE next > before + 94 * 24
)
SELECT s.topic, s.hour, clock_of(s.hour) AS clock, s.before,
    coalesce(attempts, 0) AS attempts, coalesce(firsts, 0) AS firsts, coalesce(done, 0) AS done,
    coalesce(failed_firsts, 0) AS failed, coalesce(late, 0) AS late
FROM spans s
LEFT JOIN hours h ON h.topic = s.topic AND h.hour = s.hour
