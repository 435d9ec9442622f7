-- KEY topic, measure
WITH recent AS (
    SELECT *, (max(hour_of(finished)) OVER () - hour_of(finished)) // days(7) AS age
    FROM history
    WHERE finished >= setting('first_ms') - days(14) AND finished < setting('end_ms')
), measures AS (
    SELECT topic, age, count(*) FILTER (ended(event)) AS attempts,
        count(*) FILTER (ended(event) AND started - due > setting('slo_ms')) / attempts AS late,
        count(*) FILTER (event IN ('retry', 'dead')) / attempts AS failed,
        count(*) FILTER (event = 'dead') / attempts AS dead,
        quantile_cont(started - due, 0.99) FILTER (ended(event)) AS lateness,
        count(started - due) FILTER (ended(event)) AS timed,
        quantile_cont(finished - started, 0.95) FILTER (event = 'done' AND started <= finished) AS duration,
        count(*) FILTER (event = 'done' AND started <= finished) AS took
    FROM recent
    WHERE age < 2
    GROUP BY ALL
), listed AS (
    SELECT topic, age, unnest([
        {measure: 'late', value: late, n: attempts, share: true},
        {measure: 'failed', value: failed, n: attempts, share: true},
        {measure: 'dead', value: dead, n: attempts, share: true},
        {measure: 'lateness', value: lateness, n: timed, share: false},
        {measure: 'duration', value: duration, n: took, share: false}
    ], recursive := true)
    FROM measures
), compared AS (
    SELECT topic, measure, any_value(share) AS share,
        any_value(value) FILTER (age = 1) AS before, any_value(value) FILTER (age = 0) AS now,
        coalesce(any_value(n) FILTER (age = 1), 0) AS attempts_before,
        coalesce(any_value(n) FILTER (age = 0), 0) AS attempts_now,
        (before * attempts_before + now * attempts_now) / (attempts_before + attempts_now) AS pooled
    FROM listed
    WHERE n > 0
    GROUP BY ALL
)
SELECT topic, measure, before, now, attempts_before, attempts_now,
    CASE WHEN least(attempts_before, attempts_now) < 100 THEN 'too little'
         WHEN CASE WHEN share
                   THEN abs(now - before) < 0.001
                       OR abs(now - before) <= 3 * sqrt(pooled * (1 - pooled) * (1 / attempts_before + 1 / attempts_now))
                   ELSE abs(now - before) < 10 OR greatest(now, before) < 1.25 * least(now, before) END THEN 'same'
         WHEN now > before THEN 'worse'
         ELSE 'better' END AS verdict
FROM compared
