-- Queries for `explain`, `doctor` and lists of dead letters.

-- name: newest_replays
SELECT j.replay_of, max(j.id) FROM json_each(:ids) wanted
JOIN holdfast_jobs j INDEXED BY holdfast_jobs_replay ON j.replay_of = wanted.value AND j.replay_of IS NOT NULL
GROUP BY j.replay_of;

-- Those of these jobs that have been replayed: by a replay that has neither failed nor been cancelled, or by a replay of one that
-- has. With the newest of those that count.

-- name: replayed
WITH RECURSIVE line(letter, id, status) AS (
    SELECT j.replay_of, j.id, j.status FROM json_each(:ids) wanted
    CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_replay ON j.replay_of = wanted.value AND j.replay_of IS NOT NULL
    UNION
    SELECT line.letter, j.id, j.status FROM line
    CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_replay ON j.replay_of = line.id AND j.replay_of IS NOT NULL
    WHERE line.status IN ('failed', 'cancelled')
)
SELECT letter, max(id) FROM line WHERE status NOT IN ('failed', 'cancelled') GROUP BY letter;

-- Failed jobs that are not discarded and have no replay, except cancelled ones.

-- name: failed_left
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_ended
    WHERE j.ended = 'failed' AND j.ended IS NOT NULL
      AND {not_discarded}
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL AND r.status <> 'cancelled')
    LIMIT :limit);

-- Jobs that wait for one that failed, was cancelled or was dead-lettered.

-- name: count_waiting_for_failed
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_jobs w INDEXED BY holdfast_jobs_waiting
    WHERE w.waits_for > 0 AND EXISTS (
        SELECT 1 FROM holdfast_dependencies d JOIN holdfast_jobs o ON o.id = d.on_id
        WHERE d.job_id = w.id AND o.status IN ('failed', 'cancelled', 'dead_lettered'))
    LIMIT :limit);

-- name: ready
SELECT queue, kind, count(*) AS jobs, min(max(available_at, created_at)) AS since FROM (
    SELECT queue, kind, available_at, created_at FROM holdfast_jobs INDEXED BY holdfast_jobs_ready WHERE queued AND subqueue IS NULL
    UNION ALL
    SELECT queue, kind, available_at, created_at FROM holdfast_jobs INDEXED BY holdfast_jobs_subqueue
    WHERE queued AND subqueue IS NOT NULL)
WHERE available_at <= :now_at
GROUP BY queue, kind ORDER BY 4, queue, kind LIMIT :limit;

-- The same without the jobs of some routes.

-- name: ready_elsewhere
SELECT queue, kind, count(*) AS jobs, min(max(available_at, created_at)) AS since FROM (
    SELECT queue, kind, available_at, created_at FROM holdfast_jobs INDEXED BY holdfast_jobs_ready WHERE queued AND subqueue IS NULL
    UNION ALL
    SELECT queue, kind, available_at, created_at FROM holdfast_jobs INDEXED BY holdfast_jobs_subqueue
    WHERE queued AND subqueue IS NOT NULL
      AND subqueue NOT IN (SELECT s.id FROM holdfast_subqueues s WHERE s.route {in_ids}))
WHERE available_at <= :now_at
GROUP BY queue, kind ORDER BY 4, queue, kind LIMIT :limit;

-- The same of the first jobs of every priority of every queue, by index lookups only.

-- name: first_ready
WITH RECURSIVE named (queue) AS (
    SELECT min(found) FROM (
        SELECT min(queue) AS found FROM holdfast_jobs INDEXED BY holdfast_jobs_ready WHERE queued AND subqueue IS NULL
        UNION ALL
        SELECT min(queue) FROM holdfast_jobs INDEXED BY holdfast_jobs_subqueue WHERE queued AND subqueue IS NOT NULL)
    UNION ALL
    SELECT (SELECT min(found) FROM (
        SELECT min(n.queue) AS found FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
        WHERE n.queued AND n.subqueue IS NULL AND n.queue > named.queue
        UNION ALL
        SELECT min(n.queue) FROM holdfast_jobs n INDEXED BY holdfast_jobs_subqueue
        WHERE n.queued AND n.subqueue IS NOT NULL AND n.queue > named.queue))
    FROM named WHERE named.queue IS NOT NULL LIMIT :limit
),
places (queue, priority) AS (
    SELECT w.queue, (SELECT max(found) FROM (
        SELECT max(n.priority) AS found FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
        WHERE n.queued AND n.subqueue IS NULL AND n.queue = w.queue
        UNION ALL
        SELECT max(n.priority) FROM holdfast_jobs n INDEXED BY holdfast_jobs_subqueue
        WHERE n.queued AND n.subqueue IS NOT NULL AND n.queue = w.queue))
    FROM named w WHERE w.queue IS NOT NULL
    UNION ALL
    SELECT p.queue, (SELECT max(found) FROM (
        SELECT max(n.priority) AS found FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
        WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND n.priority < p.priority
        UNION ALL
        SELECT max(n.priority) FROM holdfast_jobs n INDEXED BY holdfast_jobs_subqueue
        WHERE n.queued AND n.subqueue IS NOT NULL AND n.queue = p.queue AND n.priority < p.priority))
    FROM places p WHERE p.priority IS NOT NULL LIMIT 2 * :limit
)
SELECT j.queue, j.kind, count(*) AS jobs, min(max(j.available_at, j.created_at)) AS since
FROM places p
JOIN holdfast_jobs j ON j.id IN (
    SELECT n.id FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
    WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND n.priority = p.priority AND n.available_at <= :now_at
    ORDER BY n.available_at, n.id LIMIT :each)
  OR j.id IN (
    SELECT n.id FROM holdfast_jobs n INDEXED BY holdfast_jobs_subqueue
    WHERE n.queued AND n.subqueue IS NOT NULL AND n.queue = p.queue AND n.priority = p.priority AND n.available_at <= :now_at
    ORDER BY n.subqueue, n.available_at, n.id LIMIT :each)
WHERE p.priority IS NOT NULL
GROUP BY j.queue, j.kind ORDER BY 4, j.queue, j.kind LIMIT :limit;

-- name: event_from
SELECT pos, received_at AS at FROM (
    SELECT * FROM (SELECT pos, received_at FROM holdfast_event_rows WHERE pos >= :pos ORDER BY pos LIMIT 1)
    UNION ALL
    SELECT * FROM (
        SELECT max(pos, :pos) AS pos, received_at FROM holdfast_event_batches
        WHERE holdfast_event_batches.pos > :pos - 2048 AND holdfast_event_batches.pos + size > :pos
        ORDER BY holdfast_event_batches.pos LIMIT 1)
) ORDER BY pos LIMIT 1;

-- SQLite keeps no estimate of a table's rows.

-- name: size
SELECT NULL, page_count * page_size FROM pragma_page_count(), pragma_page_size();
