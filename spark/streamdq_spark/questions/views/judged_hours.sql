-- judged_hours: the rows of `anomalies`, of all hours that are known, with a busy day of the topic in the 57 days before or on the
-- day.
WITH strongest AS (
    SELECT topic, hour,
        max_by(hours, (abs(done_score), -hours)) FILTER (WHERE done_odd) AS done_hours,
        max_by(done_score, (abs(done_score), -hours)) FILTER (WHERE done_odd) AS done_score,
        max_by(hours, (failed_score, -hours)) FILTER (WHERE failed_odd) AS failed_hours,
        max(failed_score) FILTER (WHERE failed_odd) AS failed_score,
        max_by(hours, (late_score, -hours)) FILTER (WHERE late_odd) AS late_hours,
        max(late_score) FILTER (WHERE late_odd) AS late_score
    FROM windows
    GROUP BY topic, hour
), busy AS (
    SELECT DISTINCT topic, explode(sequence(day, day + 57)) AS day FROM busy_days
), listed AS (
    SELECT s.topic, s.hour, measure, CASE measure WHEN 'failed' THEN firsts ELSE attempts END AS attempts, weeks,
        CASE measure WHEN 'done' THEN done WHEN 'failed' THEN failed ELSE late END AS value,
        CASE measure WHEN 'done' THEN done_usual WHEN 'failed' THEN failed_usual ELSE late_usual END AS usual,
        CASE measure WHEN 'done' THEN s.done_score WHEN 'failed' THEN s.failed_score ELSE s.late_score END AS score,
        CASE measure WHEN 'done' THEN w.done_score WHEN 'failed' THEN w.failed_score ELSE w.late_score END AS window_score,
        CASE measure WHEN 'done' THEN w.done_hours WHEN 'failed' THEN w.failed_hours ELSE w.late_hours END AS window_hours
    FROM hour_scores s
    JOIN busy b ON b.topic = s.topic AND b.day = floor(s.hour / 24e0)
    LEFT JOIN strongest w ON w.topic = s.topic AND w.hour = s.hour
    CROSS JOIN (VALUES ('done'), ('failed'), ('late')) AS measures(measure)
    WHERE before >= begin
), by_themselves AS (
    SELECT *, coalesce(CASE measure
            WHEN 'done' THEN is_odd_count(score, value, usual)
            ELSE is_odd_share(score, value, usual, attempts, 1) AND (measure = 'failed' OR attempts >= 20) END, false) AS alone,
        coalesce(window_score * (value - usual) > 0, false) AS together
    FROM listed
)
SELECT topic, hour, measure, value, usual, attempts, weeks, CASE WHEN together AND NOT alone THEN window_hours ELSE 1 END AS hours,
    CASE WHEN together AND NOT alone THEN window_score ELSE score END AS score, alone OR together AS anomaly
FROM by_themselves
