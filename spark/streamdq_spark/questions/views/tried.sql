-- tried: the attempts of each consumer that ended in an hour.
-- Kept by day.
--
--   day       integer
--   topic     text
--   group     text
--   consumer  text
--   hour      integer
--   attempts  integer
--   failed    integer
--   took      integer   were done, and it is known how long they ran
--   slow      integer   of these: longer than nine of ten of their topic and group on the same day
--   ran       integer   of all attempts: it is known how long they ran
--   ran_ms    integer   that, of at most 48 hours each
--   ready     integer   it is known when they became ready, and how long any attempt of the queue ran that day
WITH attempts AS (
    SELECT day, topic, "group", consumer, hour, has_failed, CASE WHEN event = 'done' THEN ran_ms END AS took_ms,
        CASE WHEN ran_ms > 172800000 THEN 172800000 ELSE ran_ms END AS ran_ms,
        coalesce(greatest(moved, due), started) IS NOT NULL AS was_ready
    FROM lately
    WHERE is_attempt
), days AS (
    SELECT day, topic, "group", percentile_cont(0.9) WITHIN GROUP (ORDER BY took_ms) AS longest, count(ran_ms) AS timed
    FROM attempts
    GROUP BY day, topic, "group"
)
SELECT /*+ BROADCAST(d) */ a.day, a.topic, a."group", a.consumer, a.hour, count(*) AS attempts,
    count(*) FILTER (WHERE has_failed) AS failed, count(took_ms) AS took, count(*) FILTER (WHERE took_ms > longest) AS slow,
    count(ran_ms) AS ran, coalesce(sum(ran_ms), 0) AS ran_ms, count(*) FILTER (WHERE was_ready AND timed > 0) AS ready
FROM attempts a
JOIN days d ON d.day = a.day AND d.topic = a.topic AND d."group" IS NOT DISTINCT FROM a."group"
GROUP BY a.day, a.topic, a."group", a.consumer, a.hour
