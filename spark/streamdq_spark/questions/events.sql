-- The events as all tables see them. Moments are ms since 1970; hour and day count from 1970, UTC, and are those in which
-- the event took place. Only the columns are calculated that a statement names.
--
--   topic         text
--   id            text
--   group         text
--   event         text
--   consumer      text
--   attempt       integer
--   step          integer
--   error         text
--   reason        text
--   key           text
--   body_bytes    integer
--   created       integer
--   due           integer
--   moved         integer
--   started       integer
--   finished      integer
--   hour          integer
--   day           integer
--   is_attempt    flag
--   has_failed    flag
--   late_ms       integer
--   ran_ms        integer
--   entry_ms      number
--   entry_number  number
SELECT topic, id, "group", event, consumer, attempt, step, error, reason, key, body_bytes, created, due, moved, started, finished,
    hour_of(finished) AS hour,
    CAST(floor(finished / 86400000e0) AS BIGINT) AS day,
    event IN ('done', 'retry', 'dead') AS is_attempt,  -- one that ended by itself
    event IN ('retry', 'dead') AS has_failed,
    CASE WHEN event IN ('done', 'retry', 'dead') THEN started - due END AS late_ms,
    CASE WHEN started <= finished THEN finished - started END AS ran_ms,
    CAST(substring_index(entry, '-', 1) AS BIGINT) AS entry_ms,  -- the order in a shard, though clocks be set back
    CAST(substring_index(entry, '-', -1) AS BIGINT) AS entry_number
FROM (
    SELECT topic, id, "group", event, consumer, attempt, step, error, reason, key, body_bytes, entry,
        ms_of(created) AS created, ms_of(due) AS due, ms_of(moved) AS moved, ms_of(started) AS started,
        ms_of(finished) AS finished
    FROM :rows
) AS in_ms
