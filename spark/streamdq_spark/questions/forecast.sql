-- forecast: how many attempts are coming?
-- One row for each topic and coming hour, from the hour of the last event on, or of the moment at which Redis was asked.
--
--   topic     text
--   hour      time
--   expected  number    the median of the same hour in at most seven earlier weeks, each by the median of how much more was done
--                       on the last seven days than on those of that week. Where that is not known of two weeks, the median
--                       of the weeks as they were; null with fewer. With what month starts, holidays and the last three days
--                       brought beside that
--   low       number    what comes in 80 % of the hours lies between low and high, as such forecasts of the last 28 days tell;
--                       rounded to 6 digits
--   high      number    rounded to 6 digits
--   weeks     integer   how many earlier weeks it is based on
--   waiting   integer   jobs in Redis that are due in that hour; null: it was not asked
--   load      number    the larger of expected and waiting, as more may still be enqueued
SELECT topic, hour * 3600000 AS hour, expected, low, high, weeks, waiting, greatest(expected, CAST(waiting AS DOUBLE)) AS load
FROM coming
