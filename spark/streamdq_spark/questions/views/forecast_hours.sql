-- forecast_hours: the hours that the forecast is made from, and the coming ones, whose attempts are null.
--
--   topic     text
--   hour      integer
--   clock     integer   by the clocks of the time zone
--   attempts  integer
--   ago       integer   days before the last hour; 0: still to come
--   kind      text      of its day: holiday, month start or null
WITH begun AS (
    SELECT topic, min(hour) AS first
    FROM hours
    WHERE hour >= :last_hour - 92 * 24 AND topic IN (SELECT topic FROM busy_days WHERE day * 24 + 23 >= :last_hour - 92 * 24)
    GROUP BY topic
), every AS (
    SELECT a.topic, a.hour, a.clock, a.attempts
    FROM all_hours a
    JOIN begun b ON b.topic = a.topic AND a.hour > b.first
    WHERE a.hour < :last_hour
    UNION ALL
    SELECT topic, hour, clock_of(hour), NULL
    FROM (SELECT topic, explode(sequence(CAST(:now_hour AS BIGINT), CAST(:now_hour + 23 AS BIGINT))) AS hour FROM begun) AS coming_hours
)
SELECT topic, hour, clock, attempts, greatest(CAST(ceil((:last_hour - hour) / 24e0) AS BIGINT), 0) AS ago,
    CASE WHEN :holidays LIKE concat('%,', CAST(floor(clock / 24e0) AS BIGINT), ',%') THEN 'holiday'
         WHEN day_of_month(CAST(floor(clock / 24e0) AS BIGINT)) = 1 THEN 'month start' END AS kind
FROM every
