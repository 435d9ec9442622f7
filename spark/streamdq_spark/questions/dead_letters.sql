-- dead_letters: why were jobs given up?
-- One row for each topic, group, reason and error. A job that was kicked and buried again counts twice, and once as kicked.
--
--   topic          text
--   group          text
--   reason         text      exhausted, buried, invalid or crashed
--   error          text      the exception's class
--   dead           integer   burials
--   kicked         integer   how many of them were sent back afterwards
--   share          number    of the group's burials
--   most_attempts  integer
--   first          time
--   last           time
--   last_id        text      the job that was buried last, as an example
WITH letters AS (
    SELECT topic, "group", id, reason, error, event, attempt, finished, entry_ms, entry_number,
        lead(event) OVER (PARTITION BY created, id, topic, "group" ORDER BY entry_ms, entry_number) AS event_after
    FROM asked
    WHERE event IN ('dead', 'kicked')
), reasons AS (
    SELECT topic, "group", reason, error, count(*) AS dead, count(*) FILTER (WHERE event_after = 'kicked') AS kicked,
        max(attempt) AS most_attempts, min(finished) AS first, max(finished) AS last,
        max_by(id, (entry_ms, entry_number, id)) AS last_id
    FROM letters
    WHERE event = 'dead'
    GROUP BY topic, "group", reason, error
)
SELECT topic, "group", reason, error, dead, kicked, dead / sum(dead) OVER (PARTITION BY topic, "group") AS share, most_attempts,
    first, last, last_id
FROM reasons
