-- slots_by_hour: how many slots an attempt and those beside it took.
-- Kept by day.
--
--   day         integer   on which it ended
--   topic       text
--   group       text
--   hour        integer   in which it ended
--   ready_hour  integer   in which it became ready
--   slots       number    of the attempts of that day that became ready within a window before it; rounded to 9 digits
--   n           integer   attempts with so many
-- A window is the mean time of the queue's attempts of the day, at least 1 ms, or the SLO if that is longer. On a day without any
-- such time nothing is known.
WITH tried_once AS (
    SELECT day, topic, "group", hour, coalesce(greatest(moved, due), started) AS ready,
        CASE WHEN ran_ms > 172800000 THEN 172800000 ELSE ran_ms END AS ran_ms
    FROM lately
    WHERE is_attempt
), days AS (
    SELECT day, topic, "group", greatest(avg(ran_ms), 1e0) AS attempt_ms, greatest(avg(ran_ms), 1e0, CAST(:slo_ms AS DOUBLE)) AS window_ms
    FROM tried_once
    WHERE ran_ms IS NOT NULL
    GROUP BY day, topic, "group"
), placed AS (
    SELECT /*+ BROADCAST(d) */ t.day, t.topic, t."group", t.hour, hour_of(ready) AS ready_hour,
        CAST(floor(ready * 10 / window_ms) AS BIGINT) AS tenth, attempt_ms / window_ms AS of_slot
    FROM tried_once t
    JOIN days d ON d.day = t.day AND d.topic = t.topic AND d."group" IS NOT DISTINCT FROM t."group"
    WHERE ready IS NOT NULL
), in_windows AS (
    SELECT day, topic, "group", hour, ready_hour, round(of_slot * count(*) OVER (
            PARTITION BY topic, "group", day ORDER BY tenth RANGE BETWEEN 9 PRECEDING AND CURRENT ROW), 9) AS slots
    FROM placed
)
SELECT day, topic, "group", hour, ready_hour, slots, count(*) AS n FROM in_windows GROUP BY day, topic, "group", hour, ready_hour, slots
