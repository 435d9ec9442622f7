-- What DuckDB calls otherwise than Spark.
CREATE MACRO explode(list) AS unnest(list);
CREATE MACRO sequence(first, last) AS generate_series(first, last);
CREATE MACRO ms_of(moment) AS epoch_ms(moment);
CREATE MACRO substring_index(text, mark, n) AS split_part(text, mark, n);

-- The hour that the clocks of the zone show in an hour, counted in the same way: so the same hour of the week has the same
-- remainder all year. Where clocks are set back, two hours have the same.
CREATE MACRO clock_of(hour) AS CAST(floor(epoch(timezone(:tz, to_timestamp(hour * 3600))) / 3600) AS BIGINT);

-- Of pairs in the order of their first, the second of each.
CREATE MACRO second_of_each(pairs) AS list_transform(list_sort(pairs), lambda pair: pair[2]);

-- Of a day since 1970.
CREATE MACRO day_of_month(n) AS day(DATE '1970-01-01' + CAST(n AS INTEGER));
