-- busy_days: the days on which a topic had an attempt an hour, or 5 in one of them. With less, hours tell nothing: no forecast, and
-- none that is unusual, as that takes five jobs or attempts more than usual, or an outage of many.
--
--   topic  text
--   day    integer   since 1970
SELECT topic, day FROM hours GROUP BY topic, day HAVING max(attempts) >= 5 OR sum(attempts) >= 24
