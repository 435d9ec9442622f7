-- all_hours: every complete hour of a topic from the hour after its first event on; one without events counts 0.
--
--   topic     text
--   hour      integer
--   clock     integer   the hour as the clocks of the time zone show it
--   before    integer   the last earlier hour in which the topic had events
--   attempts  integer
--   done      integer
--   failed    integer
--   late      integer
WITH firsts AS (
    SELECT topic, min(hour) AS first FROM hours GROUP BY topic HAVING min(hour) < :open_hour - 1
), spans AS (
    SELECT topic, first, explode(sequence(first + 1, :open_hour - 1)) AS hour FROM firsts
)
SELECT s.topic, s.hour, clock_of(s.hour) AS clock,
    coalesce(max(h.hour) OVER (PARTITION BY s.topic ORDER BY s.hour ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), s.first) AS before,
    coalesce(attempts, 0) AS attempts, coalesce(done, 0) AS done, coalesce(failed, 0) AS failed, coalesce(late, 0) AS late
FROM spans s
LEFT JOIN hours h ON h.topic = s.topic AND h.hour = s.hour
