-- lately_waited: how long the attempts after a failure had to wait, of those that ended in the last 14 days.
--
--   topic    text
--   wait_ms  integer
--   n        integer
SELECT topic, wait_ms, count(*) AS n FROM retry_waits WHERE :last_hour - hour < 336 GROUP BY topic, wait_ms
