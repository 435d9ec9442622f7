-- expectations: what each of the `forecast_hours` was expected to bring, by what was known when its day began: what a usual day
-- brings, and
-- - on a month start or a holiday what earlier ones brought beside that, the median; on the first holiday what a Sunday brings;
-- - what the same hour of each of the last three days brought beside what was expected, the median, if all were off in one
--   direction. So a batch at another time is known after three days.
-- Either counts only if it is beyond chance.
--
--   topic      text
--   hour       integer
--   attempts   integer   null: still to come
--   ago        integer
--   last_week  integer
--   weeks      integer   as in usual_hours
--   expected   number    null: fewer than two weeks
--   fewest     number
--   most       number
--   spread     number    what such a count varies by, by chance
WITH known AS (
    SELECT topic, hour, clock, attempts, ago, kind, usual, attempts - usual AS more FROM usual_hours WHERE usual IS NOT NULL
), odd_days AS (  -- ten jobs more keep the ratio of two small hours near one
    SELECT h.topic, h.hour, percentile_cont(0.5) WITHIN GROUP (ORDER BY e.more * (h.usual + 10) / (e.usual + 10)) AS more
    FROM known h
    JOIN known e ON e.topic = h.topic AND e.kind = h.kind AND e.clock % 24 = h.clock % 24 AND e.ago > h.ago + 1
    WHERE e.more IS NOT NULL
    GROUP BY h.topic, h.hour
), first_holidays AS (
    SELECT h.topic, h.hour, percentile_cont(0.5) WITHIN GROUP (ORDER BY s.usual - h.usual) AS more
    FROM known h
    LEFT JOIN odd_days o ON o.topic = h.topic AND o.hour = h.hour
    JOIN known s ON s.topic = h.topic AND s.clock = h.clock - (CAST(floor(h.clock / 24e0) AS BIGINT) - 3) % 7 * 24 AND s.hour <= h.hour
    WHERE h.kind = 'holiday' AND o.hour IS NULL
    GROUP BY h.topic, h.hour
), days AS (
    SELECT k.topic, k.hour, k.attempts, k.ago, k.usual,
        CASE WHEN abs(o.more) > 2 * sqrt(greatest(k.usual, 1e0)) THEN greatest(k.usual + o.more, 0e0) ELSE k.usual END AS expected
    FROM known k
    LEFT JOIN (SELECT * FROM odd_days UNION ALL SELECT * FROM first_holidays) AS o ON o.topic = k.topic AND o.hour = k.hour
), off AS (
    SELECT topic, hour, attempts - expected AS more,
        CASE WHEN abs(attempts - expected) > greatest(expected / 2, 4 * sqrt(greatest(expected, 1e0)))
             THEN sign(attempts - expected) ELSE 0e0 END AS direction
    FROM days
    WHERE attempts IS NOT NULL
), lately AS (
    SELECT d.topic, d.hour, percentile_cont(0.5) WITHIN GROUP (ORDER BY o.more) AS more
    FROM days d
    JOIN off o ON o.topic = d.topic AND o.hour IN (d.hour - 24, d.hour - 48, d.hour - 72)
    GROUP BY d.topic, d.hour
    HAVING abs(sum(o.direction)) = 3
), corrected AS (
    SELECT d.topic, d.hour, d.usual, greatest(d.expected + coalesce(l.more, 0e0), 0e0) AS expected
    FROM days d
    LEFT JOIN lately l ON l.topic = d.topic AND l.hour = d.hour
)
SELECT u.topic, u.hour, attempts, ago, last_week, weeks, c.expected, fewest + c.expected - c.usual AS fewest,
    most + c.expected - c.usual AS most, sqrt(greatest(c.expected, 1e0)) AS spread
FROM usual_hours u
LEFT JOIN corrected c ON c.topic = u.topic AND c.hour = u.hour
