-- forecast_hours: the hours that the forecast is made from, and the coming ones, whose attempts are null.
--
--   topic     text
--   hour      integer
--   attempts  integer
--   of_week   integer   the hour of the week, by the clocks of the time zone
--   ago       integer   days before the last hour; 0: still to come
--   level     integer   what was done in the seven days before that hour's day; null: not known, or nothing
WITH begun AS (
    SELECT topic, min(hour) AS first
    FROM hours
    WHERE hour >= :last_hour - 71 * 24 AND topic IN (SELECT topic FROM busy_days WHERE day * 24 + 23 >= :last_hour - 71 * 24)
    GROUP BY topic
), past AS (
    SELECT a.topic, a.hour, a.attempts
    FROM all_hours a
    JOIN begun b ON b.topic = a.topic AND a.hour > b.first
    WHERE a.hour < :last_hour
), weeks AS (
    SELECT topic, hour, sum(attempts) OVER week AS level, count(*) OVER week AS known
    FROM past
    WINDOW week AS (PARTITION BY topic ORDER BY hour RANGE BETWEEN 167 PRECEDING AND CURRENT ROW)
), levels AS (
    SELECT topic, CAST((:last_hour - 1 - hour) / 24 AS BIGINT) AS ago, level
    FROM weeks
    WHERE known = 168 AND (:last_hour - 1 - hour) % 24 = 0 AND level > 0
), every AS (
    SELECT topic, hour, attempts FROM past
    UNION ALL
    SELECT topic, explode(sequence(CAST(:now_hour AS BIGINT), CAST(:now_hour + 23 AS BIGINT))), NULL FROM begun
), placed AS (
    SELECT topic, hour, attempts, clock_of(hour) % 168 AS of_week,
        greatest(CAST(ceil((:last_hour - hour) / 24e0) AS BIGINT), 0) AS ago
    FROM every
)
SELECT p.topic, p.hour, p.attempts, p.of_week, p.ago, l.level
FROM placed p
LEFT JOIN levels l ON l.topic = p.topic AND l.ago = p.ago
