-- arrivals: when the attempts of the last 14 days became ready.
--
--   topic       text
--   group       text
--   consumer    text
--   day         integer   on which it ended
--   ready_hour  integer   since 1970
--   tenth       integer   when it was ready, in tenths of a window since 1970
--   of_slot     number    how much of a window an attempt takes
-- A window is the mean time of the queue's attempts of the day, at least 1 ms, or the SLO if that is longer. On a day without any
-- such time nothing is known.
WITH tried AS (
    SELECT topic, "group", consumer, day, coalesce(greatest(moved, due), started) AS ready,
        CASE WHEN ran_ms > 172800000 THEN 172800000 ELSE ran_ms END AS ran_ms
    FROM recent
    WHERE is_attempt AND :last_hour - hour < 336
), days AS (
    SELECT topic, "group", day, greatest(avg(ran_ms), 1e0) AS attempt_ms, greatest(avg(ran_ms), 1e0, CAST(:slo_ms AS DOUBLE)) AS window_ms
    FROM tried
    WHERE ran_ms IS NOT NULL
    GROUP BY topic, "group", day
)
SELECT t.topic, t."group", t.consumer, t.day, hour_of(ready) AS ready_hour,
    CAST(floor(ready * 10 / window_ms) AS BIGINT) AS tenth, attempt_ms / window_ms AS of_slot
FROM tried t
JOIN days d ON d.topic = t.topic AND d."group" IS NOT DISTINCT FROM t."group" AND d.day = t.day
WHERE ready IS NOT NULL
