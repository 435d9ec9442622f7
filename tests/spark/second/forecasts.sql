-- The forecast of each hour of the next day and of the past, by what was known when its day began.
CREATE TABLE past AS
SELECT s.topic, s.moment, coalesce(c.attempts, 0) AS attempts
FROM (
    SELECT topic, unnest(generate_series(min(moment) + 1, (SELECT hour FROM present) - 1)) AS moment
    FROM counted
    WHERE moment >= (SELECT hour FROM present) - 71 * 24
    GROUP BY topic
) s
LEFT JOIN counted c ON c.topic = s.topic AND c.moment = s.moment;

-- What was done in the seven days before the last hour, before that of the day before, and so on, where all is known.
CREATE TABLE levels AS
SELECT topic, ago, sum(attempts) AS level
FROM past, range(100) AS d(ago)
WHERE moment >= (SELECT hour FROM present) - 24 * ago - 168 AND moment < (SELECT hour FROM present) - 24 * ago
GROUP BY ALL
HAVING count(*) = 168 AND sum(attempts) > 0;

CREATE TABLE hours AS
SELECT *, shown(moment) % 168 AS of_week, greatest(0, CAST(ceil(((SELECT hour FROM present) - moment) / 24) AS BIGINT)) AS ago
FROM (
    SELECT topic, moment, attempts FROM past
    UNION ALL
    SELECT DISTINCT topic, unnest(range((SELECT hour FROM present), (SELECT hour FROM present) + 24)), NULL
    FROM counted
    WHERE moment >= (SELECT hour FROM present) - 71 * 24
);

CREATE TABLE told AS
WITH earlier AS (
    SELECT h.topic, h.moment, e.attempts, e.attempts / l.level * n.level AS adjusted
    FROM hours h
    JOIN hours e ON e.topic = h.topic AND e.of_week = h.of_week AND e.attempts IS NOT NULL
        AND (h.moment - e.moment + 1) // 168 BETWEEN 1 AND 7 AND (h.moment - e.moment + 1) % 168 <= 2
    LEFT JOIN levels n ON n.topic = h.topic AND n.ago = h.ago
    LEFT JOIN levels l ON l.topic = e.topic AND l.ago = e.ago
), used AS (
    SELECT topic, moment,
        CASE WHEN count(adjusted) >= 2 THEN list(adjusted ORDER BY adjusted) FILTER (adjusted IS NOT NULL)
             ELSE list(CAST(attempts AS DOUBLE) ORDER BY attempts) END AS amounts
    FROM earlier
    GROUP BY ALL
)
SELECT h.*, coalesce(len(u.amounts), 0) AS weeks,
    CASE WHEN weeks >= 2 THEN list_median(u.amounts) END AS expected,
    CASE WHEN weeks >= 2 THEN u.amounts[1] END AS fewest, CASE WHEN weeks >= 2 THEN u.amounts[-1] END AS most,
    sqrt(greatest(expected, 1)) AS spread
FROM hours h
LEFT JOIN used u USING (topic, moment);

-- 80 % of the errors of the four weeks before its day lie within the band of an hour.
CREATE TABLE banded AS
WITH misses AS (
    SELECT topic, ago, (attempts - expected) / spread AS miss FROM told WHERE attempts IS NOT NULL AND expected IS NOT NULL
), bands AS (
    SELECT d.topic, d.ago, quantile_cont(miss, 0.1) AS lower, quantile_cont(miss, 0.9) AS upper
    FROM (SELECT DISTINCT topic, ago FROM told WHERE ago <= 14) d
    JOIN misses m ON m.topic = d.topic AND m.ago BETWEEN d.ago + 1 AND d.ago + 28
    GROUP BY ALL
    HAVING count(*) >= 168
)
SELECT t.*,
    CASE WHEN expected IS NULL THEN NULL
         ELSE round(CASE WHEN lower IS NULL THEN fewest ELSE greatest(0, expected + lower * spread) END, 6) END AS low,
    CASE WHEN expected IS NULL THEN NULL
         ELSE round(CASE WHEN upper IS NULL THEN most ELSE expected + upper * spread END, 6) END AS high
FROM told t
LEFT JOIN bands USING (topic, ago)
WHERE ago <= 14;
