-- KEY topic, hour
-- ROUNDED low 6, high 6
SELECT topic, moment * 3600000::BIGINT AS hour, expected, low, high, weeks, NULL AS waiting, expected AS load
FROM banded
WHERE attempts IS NULL
