-- budget_incidents: what spent the error budget of these 28 days?
-- One row for each incident: hours of a topic in which a larger share was late than the objective allows, with at most one other
-- hour between two of them. Those of less than a hundredth of the budget, or fewer than :min_late late attempts, are left out.
--
--   topic       text
--   first_hour  time
--   last_hour   time
--   hours       integer
--   attempts    integer
--   late        integer
--   spent       number    of the budget of the 28 days
WITH recent_hours AS (
    SELECT topic, hour, attempts, late, sum(attempts) OVER (PARTITION BY topic) * (1 - :objective) AS budget
    FROM hours
    WHERE :budget_hour - hour BETWEEN 0 AND :budget_days * 24 - 1
), bad AS (
    SELECT topic, hour, attempts, late, budget, hour - lag(hour) OVER (PARTITION BY topic ORDER BY hour) AS apart
    FROM recent_hours
    WHERE late > attempts * (1 - :objective)
), numbered AS (
    SELECT topic, hour, attempts, late, budget,
        count(*) FILTER (WHERE apart IS NULL OR apart > 2) OVER (PARTITION BY topic ORDER BY hour) AS number
    FROM bad
)
SELECT topic, min(hour) * 3600000 AS first_hour, max(hour) * 3600000 AS last_hour, count(*) AS hours, sum(attempts) AS attempts,
    sum(late) AS late, sum(late) / max(budget) AS spent
FROM numbered
GROUP BY topic, number
HAVING sum(late) >= :min_late AND sum(late) / max(budget) >= 0.01e0
