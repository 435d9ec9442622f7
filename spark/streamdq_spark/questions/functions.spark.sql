-- What Spark calls otherwise than DuckDB.
CREATE OR REPLACE TEMPORARY FUNCTION ms_of(moment TIMESTAMP) RETURNS BIGINT RETURN unix_millis(moment);

-- The hour that the clocks of the zone show in an hour, counted in the same way: so the same hour of the week has the same
-- remainder all year. Where clocks are set back, two hours have the same.
CREATE OR REPLACE TEMPORARY FUNCTION second_of_each(pairs ARRAY<STRUCT<step INT, wait_ms DOUBLE>>) RETURNS ARRAY<DOUBLE>
    RETURN transform(array_sort(pairs), pair -> pair.wait_ms);

-- Of a day since 1970.
CREATE OR REPLACE TEMPORARY FUNCTION day_of_month(n BIGINT) RETURNS INT RETURN day(date_add(DATE '1970-01-01', CAST(n AS INT)));
