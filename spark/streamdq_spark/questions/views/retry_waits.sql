-- retry_waits: each attempt after a failure, and how long it had to wait, from the failure to its due time: by the next step of
-- the schedule, or at the same step, where the handler told how long. Nothing else of the job in the group was in between.
--
--   topic        text
--   group        text
--   step         integer
--   finished     integer   ms since 1970
--   hour         integer   since 1970
--   wait_ms      integer
--   by_schedule  flag
SELECT topic, "group", step, finished, hour, due - failed_at AS wait_ms, step > step_before AS by_schedule
FROM (
    SELECT topic, "group", step, event, due, finished, hour, is_attempt, lag(event) OVER of_job AS event_before,
        lag(step) OVER of_job AS step_before, lag(finished) OVER of_job AS failed_at
    FROM asked
    WHERE attempt > 1 OR event = 'retry'
    WINDOW of_job AS (PARTITION BY created, id, topic, "group" ORDER BY entry_ms, entry_number)
) AS in_order
WHERE is_attempt AND due IS NOT NULL AND event_before = 'retry' AND step - step_before IN (0, 1)
