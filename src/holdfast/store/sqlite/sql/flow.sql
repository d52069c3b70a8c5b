-- Flow control. Lists of rows are JSON lists of lists.

-- part: job_of_subqueue
j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND j.priority = -s.rank AND j.subqueue = s.id;

-- part: drawn_keys
SELECT d.value ->> 0 FROM holdfast_subqueues q CROSS JOIN json_each(q.draws) AS d;

-- part: is_queue_wanted
(:queues IS NULL OR q.name IN (SELECT value FROM json_each(:queues)));

-- part: skip_locked
;

-- Numbers of subqueues.

-- name: add_routes
INSERT INTO holdfast_routes (queue, kind, requires)
SELECT value ->> 0, value ->> 2, value ->> 3 FROM json_each(:rows) WHERE true
ON CONFLICT DO NOTHING;

-- name: find_routes
SELECT w.key + 1, r.id FROM json_each(:rows) w
CROSS JOIN holdfast_routes r ON r.queue = w.value ->> 0 AND r.worker = w.value ->> 1 AND r.kind = w.value ->> 2
    AND r.requires = w.value ->> 3;

-- name: add_limit_keys
INSERT INTO holdfast_limit_keys (name, key) SELECT value ->> 0, value ->> 1 FROM json_each(:rows) WHERE true
ON CONFLICT DO NOTHING;

-- name: find_limit_keys
SELECT w.key + 1, k.id FROM json_each(:rows) w CROSS JOIN holdfast_limit_keys k ON k.name = w.value ->> 0 AND k.key = w.value ->> 1;

-- A subqueue that was asked for long ago is marked as used, so that it is not deleted.

-- name: add_subqueues
INSERT INTO holdfast_subqueues (id, queue, rank, route, partition, draws, seen_at)
SELECT (max((SELECT coalesce(max(id), 0) FROM holdfast_subqueues), (SELECT -coalesce(min(id), 0) FROM holdfast_subqueues))
        + 1 + key) * CASE value ->> 4 WHEN '[]' THEN -1 ELSE 1 END,
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, :now_at
FROM json_each(:rows) WHERE true
ON CONFLICT (queue, rank, route, partition, draws) DO UPDATE SET seen_at = excluded.seen_at
WHERE holdfast_subqueues.seen_at < excluded.seen_at - 3600000000;

-- name: find_subqueues
SELECT w.key + 1, s.id FROM json_each(:rows) w
CROSS JOIN holdfast_subqueues s ON s.queue = w.value ->> 0 AND s.rank = w.value ->> 1 AND s.route = w.value ->> 2
    AND s.partition = w.value ->> 3 AND s.draws = w.value ->> 4;

-- name: note_subqueues
INSERT INTO holdfast_subqueue_notes (queued, freed) VALUES (:queued, :freed);

-- name: take_notes
DELETE FROM holdfast_subqueue_notes WHERE id IN (SELECT id FROM holdfast_subqueue_notes ORDER BY id LIMIT :limit)
RETURNING queued, freed;

-- name: open_subqueues
UPDATE holdfast_subqueues SET is_open = 1, until = NULL WHERE id {in_ids} AND NOT is_open AND shut_key IS NULL;

-- The subqueues that wait for a key stand in line, those of each route by priority and by how long they have waited.

-- part: in_line_of
holdfast_subqueues s INDEXED BY holdfast_subqueues_shut WHERE s.shut_key IS NOT NULL AND s.shut_key;

-- name: shut_routes
WITH RECURSIVE found (key, route) AS (
    SELECT k.value, (SELECT min(s.route) FROM {in_line_of} = k.value) FROM json_each(:keys) k
    UNION ALL
    SELECT f.key, (SELECT min(s.route) FROM {in_line_of} = f.key AND s.route > f.route) FROM found f WHERE f.route IS NOT NULL
)
SELECT key, route FROM found WHERE route IS NOT NULL;

-- name: has_line
SELECT l.key FROM json_each(:rows) l WHERE EXISTS (SELECT 1 FROM {in_line_of} = l.value ->> 0 AND s.route = l.value ->> 1);

-- name: first_in_line
SELECT s.id FROM {in_line_of} = :key AND s.route = :route ORDER BY s.rank, s.shut_at, s.id LIMIT :most;

-- name: open_shut_subqueues
UPDATE holdfast_subqueues SET is_open = 1, shut_key = NULL, until = NULL WHERE id {in_ids};

-- name: open_due_subqueues
UPDATE holdfast_subqueues SET is_open = 1, shut_key = NULL, until = NULL
WHERE id IN (
    SELECT id FROM holdfast_subqueues INDEXED BY holdfast_subqueues_until
    WHERE until IS NOT NULL AND until <= :now_at ORDER BY until LIMIT :limit);

-- The subqueues to look at next.

-- part: is_served
r.queue = :queue AND r.worker IN ('', :worker) AND (:kinds IS NULL OR r.kind IN (SELECT value FROM json_each(:kinds)))
AND NOT EXISTS (SELECT 1 FROM json_each(r.requires) WHERE value NOT IN (SELECT value FROM json_each(:labels)));

-- part: is_plain_head
j.queued AND j.subqueue IS NULL AND j.queue = :queue AND j.available_at <= :now_at
AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)));

-- name: flow_ranks
SELECT (
    SELECT min((SELECT s.rank FROM holdfast_subqueues s INDEXED BY holdfast_subqueues_open
                WHERE s.queue = :queue AND s.route = r.id AND s.is_open AND s.rank >= :rank_from ORDER BY s.rank LIMIT 1))
    FROM holdfast_routes r WHERE {is_served}), (
    SELECT -j.priority FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready
    WHERE {is_plain_head} AND j.priority <= -:rank_from
    ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1);

-- name: flow_window
SELECT s.id, s.partition, s.draws, s.route, s.shut_at FROM holdfast_routes r
CROSS JOIN holdfast_subqueues s ON s.id IN (
    SELECT n.id FROM holdfast_subqueues n INDEXED BY holdfast_subqueues_open
    WHERE n.queue = :queue AND n.route = r.id AND n.rank = :rank AND n.is_open
      AND (n.partition, n.id) > (:after_partition, :after_id)
    ORDER BY n.partition, n.id LIMIT :limit)
WHERE {is_served}
ORDER BY s.partition, s.id LIMIT :limit;

-- Partitions with open subqueues, and some subqueues of one.

-- part: is_open_here
holdfast_subqueues s INDEXED BY holdfast_subqueues_open
WHERE s.queue = :queue AND s.route = r.id AND s.rank = :rank AND s.is_open AND s.partition;

-- name: flow_partitions
WITH RECURSIVE found (partition) AS (
    SELECT min((SELECT s.partition FROM {is_open_here} >= :from_partition ORDER BY s.partition LIMIT 1))
    FROM holdfast_routes r WHERE {is_served}
    UNION ALL
    SELECT (SELECT min((SELECT s.partition FROM {is_open_here} > f.partition ORDER BY s.partition LIMIT 1))
            FROM holdfast_routes r WHERE {is_served})
    FROM found f WHERE f.partition IS NOT NULL
)
SELECT partition FROM found WHERE partition IS NOT NULL LIMIT :limit;

-- name: flow_windows
SELECT s.id, s.partition, s.draws, s.route, s.shut_at FROM holdfast_routes r
CROSS JOIN holdfast_subqueues s ON s.id IN (
    SELECT id FROM (SELECT s.id FROM {is_open_here} = :partition AND s.id > :place ORDER BY s.id LIMIT :limit)
    UNION ALL
    SELECT id FROM (SELECT s.id FROM {is_open_here} = :partition AND s.id <= :place ORDER BY s.id LIMIT :limit))
WHERE {is_served};

-- name: read_limit_keys
SELECT k.id, k.name, k.key, k.body, (SELECT l.body FROM holdfast_limits l WHERE l.name = k.name), k.used, k.tokens, k.filled_at
FROM holdfast_limit_keys k WHERE k.id {in_ids};

-- What is in use of each key by each claim.

-- name: count_slots
SELECT s.key_id, s.claim_pos, {slot_units} FROM holdfast_slots s WHERE s.key_id {in_ids};

-- name: drop_slots
DELETE FROM holdfast_slots WHERE (key_id, claim_pos) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:rows));

-- name: add_slots
INSERT INTO holdfast_slots (key_id, claim_pos, jobs)
SELECT value ->> 0, value ->> 1, json_group_array(json_array(value ->> 2, value ->> 3)) FROM json_each(:rows)
GROUP BY 1, 2;

-- name: save_limit_keys
UPDATE holdfast_limit_keys AS k SET used = s.value ->> 1, tokens = s.value ->> 2, filled_at = s.value ->> 3
FROM json_each(:rows) s WHERE k.id = s.value ->> 0;

-- name: pick_jobs_of
SELECT w.value, (
    SELECT json_group_array(id) FROM (
        SELECT j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
        WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = :queue AND j.priority = -:rank AND j.subqueue = w.value
          AND j.available_at <= :until
        ORDER BY j.available_at, j.id LIMIT :count))
FROM json_each(:subqueues) w;

-- name: pick_plain_jobs
SELECT j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready
WHERE {is_plain_head} AND j.priority = -:rank AND j.available_at <= min(coalesce(:before_at, :now_at), :now_at)
ORDER BY j.available_at, j.id LIMIT :limit;

-- Close subqueues without a job that may start now. `until` is when the first of their jobs is available.

-- name: close_empty_subqueues
UPDATE holdfast_subqueues AS s SET is_open = 0, shut_key = NULL, shut_at = NULL, until = (
    SELECT j.available_at FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
    WHERE {job_of_subqueue}
    ORDER BY j.available_at LIMIT 1)
WHERE s.id {in_ids} AND s.is_open AND NOT EXISTS (
    SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
    WHERE {job_of_subqueue}
      AND j.available_at <= :now_at);

-- name: shut_subqueues
UPDATE holdfast_subqueues AS s SET is_open = 0, shut_key = c.value ->> 1, until = c.value ->> 2, shut_at = c.value ->> 3
FROM json_each(:rows) c WHERE s.id = c.value ->> 0;

-- name: queue_state
SELECT paused_at, has_flow FROM holdfast_queues WHERE name = :queue;

-- name: limited_jobs
SELECT queue, subqueue FROM holdfast_jobs WHERE id {in_ids} AND subqueue > 0;

-- When a worker may get a job of a queue with subqueues: now, if one is open for it or notes are left; else when the first is
-- opened.

-- name: flow_next_at
SELECT CASE WHEN EXISTS (SELECT 1 FROM holdfast_subqueue_notes)
        OR EXISTS (SELECT 1 FROM holdfast_routes r CROSS JOIN holdfast_subqueues s INDEXED BY holdfast_subqueues_open
                   ON s.queue = :queue AND s.route = r.id AND s.is_open WHERE {is_served})
        OR EXISTS (SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready WHERE {is_plain_head})
    THEN :now_at ELSE (
        SELECT min(s.until) FROM holdfast_subqueues s INDEXED BY holdfast_subqueues_until
        WHERE s.until IS NOT NULL AND s.queue = :queue
          AND s.route IN (SELECT r.id FROM holdfast_routes r WHERE {is_served})) END;

-- What a diagnosis reads.

-- name: first_places
SELECT j.available_at, j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready
WHERE j.queued AND j.subqueue IS NULL AND j.queue = :queue AND j.priority = :priority AND j.available_at <= :now_at
ORDER BY j.available_at, j.id LIMIT :limit;

-- name: first_like
SELECT j.available_at, j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = :queue AND j.priority = :priority
  AND j.subqueue = (SELECT own.subqueue FROM holdfast_jobs own WHERE own.id = :id) AND j.available_at <= :now_at
ORDER BY j.available_at, j.id LIMIT :limit;

-- name: has_higher
SELECT EXISTS (
    SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready
    WHERE j.queued AND j.subqueue IS NULL AND j.queue = :queue AND j.priority > :priority AND j.available_at <= :now_at)
OR EXISTS (
    SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
    WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = :queue AND j.priority > :priority AND j.available_at <= :now_at);

-- Jobs that wait for keys of limits: those that are available in subqueues that were closed because of the key.

-- part: ready_of_subqueue
holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
    ON j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND j.priority = -s.rank AND j.subqueue = s.id
    AND j.available_at <= :now_at;

-- part: first_of_subqueue
(SELECT max(j.available_at, j.created_at) FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
 WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND j.priority = -s.rank AND j.subqueue = s.id
   AND j.available_at <= :now_at
 ORDER BY j.available_at LIMIT 1);

-- part: shut_subqueues_of
holdfast_subqueues s INDEXED BY holdfast_subqueues_shut;

-- name: waiting_jobs
SELECT id, jobs, since FROM (
    SELECT k.value AS id, (
        SELECT count(*) FROM (
            SELECT 1 FROM {shut_subqueues_of} CROSS JOIN {ready_of_subqueue}
            WHERE s.shut_key IS NOT NULL AND s.shut_key = k.value LIMIT :limit)) AS jobs, (
        SELECT min(since) FROM (
            SELECT {first_of_subqueue} AS since FROM {shut_subqueues_of}
            WHERE s.shut_key IS NOT NULL AND s.shut_key = k.value LIMIT :limit)) AS since
    FROM json_each(:ids) k)
WHERE jobs > 0;

-- name: waiting_by_limit
WITH shut AS MATERIALIZED (
    SELECT s.id, s.queue, s.rank, k.name
    FROM (SELECT s.id, s.queue, s.rank, s.shut_key FROM {shut_subqueues_of} WHERE s.shut_key IS NOT NULL LIMIT :subqueues) s
    CROSS JOIN holdfast_limit_keys k ON k.id = s.shut_key
)
SELECT n.name, (
    SELECT count(*) FROM (SELECT 1 FROM shut s CROSS JOIN {ready_of_subqueue} WHERE s.name = n.name LIMIT :limit)) AS jobs, (
    SELECT min({first_of_subqueue}) FROM shut s WHERE s.name = n.name) AS since
FROM (SELECT DISTINCT name FROM shut) n;

-- name: routed_jobs
SELECT r.queue, r.kind, r.requires, (
    SELECT count(*) FROM (
        SELECT 1 FROM holdfast_subqueues s INDEXED BY holdfast_subqueues_open
        CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
            ON {job_of_subqueue}
        WHERE s.queue = r.queue AND s.route = r.id AND s.is_open AND j.available_at <= :now_at
        LIMIT :limit)) AS jobs, (
    SELECT min(found) FROM (
        SELECT max(j.available_at, j.created_at) AS found FROM holdfast_subqueues s INDEXED BY holdfast_subqueues_open
        CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
            ON {job_of_subqueue}
        WHERE s.queue = r.queue AND s.route = r.id AND s.is_open AND j.available_at <= :now_at
        LIMIT :limit)) AS since, r.id
FROM (SELECT * FROM holdfast_routes WHERE requires <> '[]' ORDER BY id DESC LIMIT :routes) r
ORDER BY 1, 2, 3;

-- name: count_jobs_of
SELECT s.id, (
    SELECT count(*) FROM (
        SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
        WHERE {job_of_subqueue}
        LIMIT :limit))
FROM holdfast_subqueues s WHERE s.id {in_ids};

-- part: slot_units
(SELECT coalesce(sum(i.value ->> 1), 0) FROM json_each(s.jobs) i CROSS JOIN holdfast_jobs j ON j.id = i.value ->> 0
 WHERE j.claim_pos = s.claim_pos AND j.status IN ('claimed', 'running', 'stalled'));

-- name: walk_slots
SELECT s.key_id, s.claim_pos, {slot_units} FROM holdfast_slots s
WHERE s.key_id > :after ORDER BY s.key_id, s.claim_pos LIMIT :limit;

-- name: limit_usage
SELECT k.name, sum(u.units), count(DISTINCT u.key_id)
FROM (SELECT s.key_id, {slot_units} AS units FROM holdfast_slots s) u JOIN holdfast_limit_keys k ON k.id = u.key_id
WHERE u.units > 0 GROUP BY k.name;
