-- budget: how much of the objective's error budget is left, and how fast is it spent?
-- One row for each topic, of the 28 days that end with the hour of the last event, or with the last day if there are events of
-- later ones. The budget is the share of the attempts that the objective lets be late.
--
--   topic     text
--   days      number    for how many of them the topic is known
--   attempts  integer
--   late      integer   attempts that started later than the SLO
--   on_time   number    the share of the others
--   spent     number    of the budget
--   left      number    what remains, below 0 if it is overdrawn
--   burn_1h   number    the share of late attempts over what the objective allows, in the last hour by the clock, which may be
--                       incomplete; null without attempts
--   burn_6h   number    in the last six
--   burn_3d   number    in the last 72
--   alert     text      page, ticket or none, by several windows at once (Google, The Site Reliability Workbook, chapter 5,
--                       Multiwindow, Multi-Burn-Rate Alerts): a page if 2 % of the budget went in an hour, or 5 % in six, a
--                       ticket if 10 % went in three days, while the next shorter window burns as fast; for one hour it would
--                       be five minutes, which hours do not tell. Fewer than :min_late late attempts are no alert
WITH recent_hours AS (
    SELECT topic, :budget_hour - hour AS age, attempts, late
    FROM hours
    WHERE :budget_hour - hour BETWEEN 0 AND :budget_days * 24 - 1
), topics AS (
    SELECT topic, (max(age) + 1) / 24 AS days, sum(attempts) AS attempts, sum(late) AS late,
        sum(late) FILTER (WHERE age < 1) AS late_1h, sum(attempts) FILTER (WHERE age < 1) AS attempts_1h,
        sum(late) FILTER (WHERE age < 6) AS late_6h, sum(attempts) FILTER (WHERE age < 6) AS attempts_6h,
        sum(late) FILTER (WHERE age < 72) AS late_3d, sum(attempts) FILTER (WHERE age < 72) AS attempts_3d
    FROM recent_hours
    GROUP BY topic
), burning AS (
    SELECT topic, days, attempts, late, late_1h, late_6h, late_3d, late / attempts / (1 - :objective) AS spent,
        share(late_1h, attempts_1h) / (1 - :objective) AS burn_1h, share(late_6h, attempts_6h) / (1 - :objective) AS burn_6h,
        share(late_3d, attempts_3d) / (1 - :objective) AS burn_3d
    FROM topics
    WHERE attempts > 0
)
SELECT topic, days, attempts, late, 1 - late / attempts AS on_time, spent, 1 - spent AS "left", burn_1h, burn_6h, burn_3d,
    CASE WHEN late_1h >= :min_late AND burn_1h >= :page_1h THEN 'page'
         WHEN late_6h >= :min_late AND least(burn_6h, coalesce(burn_1h, 0e0)) >= :page_6h THEN 'page'
         WHEN late_3d >= :min_late AND least(burn_3d, coalesce(burn_6h, 0e0)) >= :ticket_3d THEN 'ticket'
         ELSE 'none' END AS alert
FROM burning
