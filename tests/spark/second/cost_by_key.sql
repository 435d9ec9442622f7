-- KEY topic, group, rank
WITH lives AS (
    SELECT topic, "group", id, created, max(key) AS key, coalesce(max(body_bytes), 0) AS body_bytes,
        list({'event': event, 'bytes': coalesce(body_bytes, 0),
            'ran': CASE WHEN started <= finished THEN finished - started ELSE 0 END})
            FILTER (event IN ('done', 'retry', 'dead', 'reclaimed', 'released')) AS claims
    FROM asked
    GROUP BY ALL
),
spent AS (
    SELECT topic, "group", key, body_bytes,
        coalesce(list_sum([c.ran FOR c IN claims]), 0) AS worker_ms,
        coalesce(list_sum([c.bytes FOR c IN claims]), 0) AS read_bytes,
        coalesce(len([c FOR c IN claims IF c.event NOT IN ('reclaimed', 'released')]), 0) AS attempts,
        coalesce(len([c FOR c IN claims IF c.event IN ('retry', 'dead')]), 0) AS failed,
        coalesce(len([c FOR c IN claims IF c.event = 'reclaimed']), 0) AS reclaimed,
        coalesce(list_sum([c.ran FOR c IN claims IF c.event IN ('retry', 'dead')]), 0) AS failed_ms,
        coalesce(list_sum([c.ran FOR c IN claims IF c.event = 'reclaimed']), 0) AS reclaimed_ms,
        coalesce(list_sum([c.ran FOR c IN claims IF c.event = 'released']), 0) AS put_back_ms
    FROM lives
),
keys AS (
    SELECT topic, "group", key, count(*) AS jobs, sum(COLUMNS('_ms$|_bytes$|^attempts$|^failed$|^reclaimed$'))
    FROM spent
    WHERE key IS NOT NULL
    GROUP BY topic, "group", key
),
placed AS (
    SELECT *, 1 + (
        SELECT count(*) FROM keys AS other
        WHERE other.topic = keys.topic AND other."group" = keys."group"
            AND (other.worker_ms > keys.worker_ms OR other.worker_ms = keys.worker_ms AND other.key < keys.key)
    ) AS place
    FROM keys
),
named AS (
    SELECT * REPLACE (CASE WHEN place <= 20 THEN place END AS place, CASE WHEN place <= 20 THEN key END AS key)
    FROM placed
),
rows AS (
    SELECT topic, "group", place, key, count(*) AS keys,
        sum(COLUMNS('_ms$|_bytes$|^attempts$|^failed$|^reclaimed$|^jobs$'))
    FROM named
    GROUP BY topic, "group", place, key
),
whole AS (
    SELECT topic, "group", sum(worker_ms) AS whole_ms FROM spent GROUP BY ALL
)
SELECT topic, "group", place AS rank, key, keys, jobs, attempts, failed, reclaimed, worker_ms,
    worker_ms / nullif(whole_ms, 0) AS share, failed_ms, failed_ms / nullif(worker_ms, 0) AS failed_share,
    reclaimed_ms, reclaimed_ms / nullif(worker_ms, 0) AS reclaimed_share, put_back_ms, body_bytes, read_bytes
FROM rows JOIN whole USING (topic, "group")
