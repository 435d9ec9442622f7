-- anomalies: which hours were unusual?
-- One row for each topic, complete hour and measure. An hour without events counts as 0. A topic counts from the hour after its
-- first event in the 57 days before the hour's day, if it had at least 24 attempts on one of these days or this one, or
-- 5 in an hour. Day: hour.
--
--   topic     text
--   hour      time
--   measure   text      done (jobs), failed (first attempts) or late (attempts that started later than the SLO)
--   value     integer
--   usual     number    what was expected
--   attempts  integer   of the hour; of failures, first attempts
--   weeks     integer   earlier weeks with data for it
--   hours     integer   the score is of so many, of which this is the last
--   score     number    the distance in standard deviations; null with fewer than three weeks; rounded to 6 digits
--   anomaly   flag      beyond 4, and a tenth of what is usual and, if it is more, five jobs; of shares beyond 3.7 (3.5 of several
--                       hours, 2.9 if they are two and a half times the usual), five attempts and one percentage point; late
--                       starts must be of at least 20 attempts
SELECT topic, hour * 3600000 AS hour, measure, value, usual, attempts, weeks, hours, score, anomaly
FROM judged_hours
WHERE hour >= :first_hour AND hour < :end_hour
