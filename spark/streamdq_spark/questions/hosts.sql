-- hosts: is a host worse than the others?
-- One row for each group, host and measure, of the 14 days that end with the hour of the last event.
--
--   group     text
--   host      text
--   measure   text      failed, or slow: took longer than nine of ten that were done of their topic and group on the same day
--   attempts  integer   of the host, in hours, topics and groups in which other hosts had some, too
--   seen      integer   how many of them failed, or were slow
--   usual     number    how many would be if it were as these others: so neither a bad hour nor a host's share of a difficult topic
--                       counts against it; rounded to 9 digits
--   chance    number    how likely the difference is if all hosts were alike, all rows together: an hour of a topic and group is a
--                       stratum (Mantel, Haenszel, Statistical Aspects of the Analysis of Data from Retrospective Studies of
--                       Disease, 1959), and hours are clusters, as in compared; rounded to 4 digits
--   verdict   text      bad: chance below 5 %, half as many again as usual and five more; too little: fewer than five of either
--                       kind were to be expected with all alike; else ok
WITH counted AS (
    SELECT topic, "group", hour, host_of(consumer) AS host, sum(attempts) AS attempts, sum(failed) AS failed, sum(took) AS took,
        sum(slow) AS slow
    FROM tried
    WHERE consumer IS NOT NULL AND :last_hour - hour < 336
    GROUP BY topic, "group", hour, host_of(consumer)
), listed AS (
    SELECT topic, "group", hour, host, measure, CASE measure WHEN 'failed' THEN attempts ELSE took END AS n,
        CASE measure WHEN 'failed' THEN failed ELSE slow END AS x
    FROM counted
    CROSS JOIN (VALUES ('failed'), ('slow')) AS measures(measure)
), whole AS (
    SELECT topic, "group", hour, host, measure, n, x, sum(n) OVER stratum AS all_n, sum(x) OVER stratum AS all_x
    FROM listed
    WINDOW stratum AS (PARTITION BY topic, "group", hour, measure)
), strata AS (
    SELECT "group", host, measure, hour, n, x, n * (all_x - x) / (all_n - n) AS usual, n * all_x / all_n AS expected,
        -- of a hypergeometric distribution
        n * (all_x / all_n) * (1 - all_x / all_n) * (all_n - n) / (all_n - 1) AS variance
    FROM whole
    WHERE n > 0 AND all_n > n
), hours AS (
    SELECT "group", host, measure, hour, sum(n) AS n, sum(x) AS x, sum(usual) AS usual, sum(expected) AS expected,
        sum(variance) AS variance
    FROM strata
    GROUP BY "group", host, measure, hour
), added AS (  -- rounded, as a sum's last bit depends on the order in which its parts come
    SELECT "group", host, measure, sum(n) AS attempts, sum(x) AS seen, round(sum(usual), 9) AS usual, round(sum(expected), 9) AS expected,
        round(sum(variance), 9) AS by_chance, coalesce(var_samp(x - expected), 0e0) * count(*) AS by_hour,
        greatest(count(*) - 1, 1) AS free
    FROM hours
    GROUP BY "group", host, measure
), tested AS (
    SELECT *, CASE WHEN least(expected, attempts - expected) >= 5 AND by_chance > 0
                   THEN two_sided(seen - expected, by_chance, by_hour, free) END AS p
    FROM added
), raised AS (
    SELECT *, least(p * count(p) OVER (ORDER BY p DESC NULLS LAST), 1e0) AS at_least FROM tested
), judged AS (
    SELECT *, CASE WHEN p IS NOT NULL THEN round(max(at_least) OVER (ORDER BY p NULLS LAST), 4) END AS chance FROM raised
)
SELECT "group", host, measure, attempts, seen, usual, chance,
    CASE WHEN chance IS NULL THEN 'too little'
         WHEN chance < 0.05 AND seen >= 1.5 * usual AND seen >= usual + 5 THEN 'bad'
         ELSE 'ok' END AS verdict
FROM judged
