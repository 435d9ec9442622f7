-- forecast_accuracy: how good were such forecasts lately?
-- One row for each topic: each of the last 14 days is forecast, with its band, by what was known when it began.
--
--   topic            text
--   hours            integer   that could be forecast, and whose week before is known
--   attempts         integer   what came in them
--   error            number    the sum of all differences over the sum of what came (WAPE)
--   error_last_week  number    the same of the simplest forecast, the same hour of the week before
--   covered          number    the share of hours within the band
SELECT topic, count(*) AS hours, sum(attempts) AS attempts, share(sum(abs(attempts - expected)), sum(attempts)) AS error,
    share(sum(abs(attempts - last_week)), sum(attempts)) AS error_last_week,
    count(*) FILTER (WHERE attempts BETWEEN low AND high) / count(*) AS covered
FROM forecasts
WHERE attempts IS NOT NULL AND expected IS NOT NULL AND last_week IS NOT NULL
GROUP BY topic
