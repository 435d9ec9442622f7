-- flows: where do flows spend their time?
-- One row for each topic of critical paths, and one for all flows.
--
--   topic          text      null: all flows. {others}: those that a path of very many topics does not name
--   flows          integer   that had it on their critical path; of all: that have ended
--   failed         integer   those of them that failed or were cancelled
--   with_path      integer   those of them whose path is known
--   waited_ms      integer   how long jobs of the topic waited on these paths, added up
--   ran_ms         integer   how long they ran
--   share          number    of the time of all paths
--   waited_p50_ms  number    of each flow
--   waited_p95_ms  number
--   ran_p50_ms     number
--   ran_p95_ms     number
WITH ended AS (  -- each once, though its end was repeated; a row about the path may be missing
    SELECT id, created, max(reason) FILTER (WHERE event = 'flow') AS account
    FROM asked
    WHERE topic = 'streamdq.flows' AND event IN ('flow', 'unblocked')
    GROUP BY id, created
), known AS (
    SELECT id, created, account, split_part(account, ' ', 1) <> 'done' AS has_failed FROM ended
), words AS (
    SELECT id, created, has_failed, explode(split(account, ' ')) AS word FROM known WHERE account IS NOT NULL
), steps AS (
    SELECT id, created, has_failed, regexp_replace(word, '=[0-9]+,[0-9]+$', '') AS topic,
        CAST(regexp_extract(word, '=([0-9]+),([0-9]+)$', 1) AS BIGINT) AS waited_ms,
        CAST(regexp_extract(word, '=([0-9]+),([0-9]+)$', 2) AS BIGINT) AS ran_ms
    FROM words
    WHERE word LIKE '%=%'
), whole AS (
    SELECT id, created, sum(waited_ms) AS waited_ms, sum(ran_ms) AS ran_ms FROM steps GROUP BY id, created
), parts AS (
    SELECT topic, has_failed, waited_ms, ran_ms FROM steps
    UNION ALL
    SELECT NULL, k.has_failed, w.waited_ms, w.ran_ms
    FROM known k
    LEFT JOIN whole w ON w.id = k.id AND w.created = k.created
), summed AS (
    SELECT topic, count(*) AS flows, count(*) FILTER (WHERE has_failed) AS failed, count(waited_ms) AS with_path,
        coalesce(sum(waited_ms), 0) AS waited_ms, coalesce(sum(ran_ms), 0) AS ran_ms, sum(waited_ms + ran_ms) AS took_ms,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_ms) AS waited_p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY waited_ms) AS waited_p95_ms,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY ran_ms) AS ran_p50_ms,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY ran_ms) AS ran_p95_ms
    FROM parts
    GROUP BY topic
)
SELECT topic, flows, failed, with_path, waited_ms, ran_ms, share(took_ms, max(took_ms) OVER ()) AS share, waited_p50_ms,
    waited_p95_ms, ran_p50_ms, ran_p95_ms
FROM summed
