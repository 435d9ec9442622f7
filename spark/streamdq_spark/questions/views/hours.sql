-- hours: what happened in each hour in which anything did, as far back as any table looks.
-- Kept by day.
--
--   day            integer   since 1970
--   topic          text
--   hour           integer   since 1970
--   attempts       integer
--   firsts         integer   of them, first attempts
--   done           integer
--   failed         integer
--   failed_firsts  integer   of them, first attempts
--   dead           integer
--   late           integer   attempts that started later than the SLO
SELECT day, topic, hour, count(*) FILTER (WHERE is_attempt) AS attempts,
    count(*) FILTER (WHERE is_attempt AND attempt <= 1) AS firsts, count(*) FILTER (WHERE event = 'done') AS done,
    count(*) FILTER (WHERE has_failed) AS failed, count(*) FILTER (WHERE has_failed AND attempt <= 1) AS failed_firsts,
    count(*) FILTER (WHERE event = 'dead') AS dead,
    count(*) FILTER (WHERE late_ms > :slo_ms) AS late
FROM earlier
GROUP BY day, topic, hour
