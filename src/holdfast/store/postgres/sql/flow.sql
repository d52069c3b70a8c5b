-- Flow control. No statement waits for a row that a claim may have locked: claims skip keys that another claim has, and one claim
-- at a time works through the notes.

-- part: job_of_subqueue
j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND -j.priority = s.rank AND j.subqueue = s.id;

-- part: is_queue_wanted
(%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]));

-- part: skip_locked
FOR UPDATE SKIP LOCKED;

-- part: drawn_keys
SELECT CAST(d ->> 0 AS bigint) FROM holdfast.subqueues q CROSS JOIN json_array_elements(CAST(q.draws AS json)) AS d;

-- Names of subqueues, routes and keys are made by many transactions at a time, and forgotten by one alone.

-- name: lock_names
SELECT pg_advisory_xact_lock_shared(hashtextextended('holdfast.subqueue_names', 0));

-- name: lock_names_alone
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.subqueue_names', 0));

-- Numbers of subqueues. Rows that exist are not locked.

-- name: add_routes
INSERT INTO holdfast.routes (queue, kind, requires)
SELECT r.queue, r.kind, ARRAY (SELECT json_array_elements_text(r.requires::json))
FROM unnest(%(queues)s::text[], %(workers)s::text[], %(kinds)s::text[], %(labels)s::text[]) AS r (queue, worker, kind, requires)
ORDER BY 1, r.worker, 2, 3
ON CONFLICT DO NOTHING;

-- name: find_routes
SELECT w.n, r.id
FROM unnest(%(queues)s::text[], %(workers)s::text[], %(kinds)s::text[], %(labels)s::text[])
    WITH ORDINALITY AS w (queue, worker, kind, requires, n)
CROSS JOIN LATERAL (
    SELECT id FROM holdfast.routes
    WHERE queue = w.queue AND worker = w.worker AND kind = w.kind
      AND requires = ARRAY (SELECT json_array_elements_text(w.requires::json)) OFFSET 0) AS r;

-- name: add_limit_keys
INSERT INTO holdfast.limit_keys (name, key)
SELECT k.name, k.key FROM unnest(%(names)s::text[], %(keys)s::text[]) AS k (name, key) ORDER BY 1, 2
ON CONFLICT DO NOTHING;

-- name: find_limit_keys
SELECT w.n, k.id
FROM unnest(%(names)s::text[], %(keys)s::text[]) WITH ORDINALITY AS w (name, key, n)
CROSS JOIN LATERAL (SELECT id FROM holdfast.limit_keys WHERE name = w.name AND key = w.key OFFSET 0) AS k;

-- A subqueue that was asked for long ago is marked as used, so that it is not deleted.

-- name: add_subqueues
INSERT INTO holdfast.subqueues AS s (id, queue, rank, route, partition, draws, seen_at)
SELECT nextval('holdfast.subqueue_id') * CASE n.draws WHEN '[]' THEN -1 ELSE 1 END, n.queue, n.rank, n.route, n.partition, n.draws, {now}
FROM unnest(%(queues)s::text[], %(ranks)s::integer[], %(routes)s::bigint[], %(partitions)s::text[], %(draws)s::text[])
    AS n (queue, rank, route, partition, draws)
ORDER BY 2, 3, 4, 5, 6
ON CONFLICT (queue, rank, route, partition, draws) DO UPDATE SET seen_at = excluded.seen_at
WHERE s.seen_at < excluded.seen_at - interval '1 hour';

-- name: find_subqueues
SELECT w.n, s.id
FROM unnest(%(queues)s::text[], %(ranks)s::integer[], %(routes)s::bigint[], %(partitions)s::text[], %(draws)s::text[])
    WITH ORDINALITY AS w (queue, rank, route, partition, draws, n)
CROSS JOIN LATERAL (
    SELECT id FROM holdfast.subqueues
    WHERE queue = w.queue AND rank = w.rank AND route = w.route AND partition = w.partition AND draws = w.draws OFFSET 0) AS s;

-- name: note_subqueues
INSERT INTO holdfast.subqueue_notes (queued, freed) VALUES (%(queued)s::bigint[], %(freed)s::bigint[]);

-- Notes are read by one claim at a time, which has this lock until its transaction ends. So a subqueue that it closes is opened
-- again by any note that was not visible to it.

-- name: lock_notes
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.subqueue_notes', 0));

-- name: wait_for_notes
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.subqueue_notes', 0));

-- name: take_notes
DELETE FROM holdfast.subqueue_notes WHERE id IN (
    SELECT id FROM holdfast.subqueue_notes ORDER BY id LIMIT %(limit)s)
RETURNING queued, freed;

-- name: open_subqueues
UPDATE holdfast.subqueues SET is_open = true, until = NULL WHERE id {in_ids} AND NOT is_open AND shut_key IS NULL;

-- The subqueues that wait for a key stand in line, those of each route by priority and by how long they have waited.

-- name: shut_routes
WITH RECURSIVE found (key, route) AS (
    SELECT k.key, (SELECT min(s.route) FROM holdfast.subqueues s WHERE s.shut_key = k.key) FROM unnest(%(keys)s::bigint[]) AS k (key)
    UNION ALL
    SELECT f.key, (SELECT min(s.route) FROM holdfast.subqueues s WHERE s.shut_key = f.key AND s.route > f.route)
    FROM found f WHERE f.route IS NOT NULL
)
SELECT key, route FROM found WHERE route IS NOT NULL;

-- name: first_in_line
SELECT s.id FROM unnest(%(keys)s::bigint[], %(routes)s::bigint[], %(counts)s::integer[]) AS l (key, route, n)
CROSS JOIN LATERAL (
    SELECT id FROM holdfast.subqueues WHERE shut_key = l.key AND route = l.route ORDER BY rank, shut_at, id LIMIT l.n) AS s;

-- name: open_shut_subqueues
UPDATE holdfast.subqueues SET is_open = true, shut_key = NULL, until = NULL WHERE id {in_ids};

-- name: open_due_subqueues
UPDATE holdfast.subqueues SET is_open = true, shut_key = NULL, until = NULL
WHERE id IN (
    SELECT id FROM holdfast.subqueues WHERE until <= {now} ORDER BY until LIMIT %(limit)s);

-- The subqueues to look at next: those of the highest priority that has open ones for this worker, after its last turn, and from
-- the first one on if there are few. A row without a subqueue has the ranks only.

-- part: served_routes
served AS MATERIALIZED (
    SELECT r.id FROM holdfast.routes r
    WHERE r.queue = %(queue)s AND r.worker IN ('', %(worker)s) AND r.requires <@ %(labels)s::text[]
      AND (%(kinds)s::text[] IS NULL OR r.kind = ANY (%(kinds)s::text[]))
);

-- part: plain_head
SELECT j.available_at, -j.priority AS rank FROM holdfast.jobs j
WHERE j.queued AND j.subqueue IS NULL AND j.queue = %(queue)s AND -j.priority >= %(rank_from)s
  AND j.available_at <= (SELECT at FROM clock)
  AND CASE WHEN %(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]) THEN true END
ORDER BY -j.priority, j.available_at, j.id LIMIT 1;

-- name: flow_ranks
WITH {clock}, {served_routes}
SELECT (
    SELECT min((SELECT s.rank FROM holdfast.subqueues s
                WHERE s.queue = %(queue)s AND s.route = r.id AND s.is_open AND s.rank >= %(rank_from)s ORDER BY s.rank LIMIT 1))
    FROM served r), (SELECT h.rank FROM ({plain_head}) AS h);

-- name: flow_window
WITH {served_routes}
SELECT s.id, s.partition, s.draws, r.id, s.shut_at FROM served r
CROSS JOIN LATERAL (
    SELECT id, partition, draws, shut_at FROM holdfast.subqueues
    WHERE queue = %(queue)s AND route = r.id AND rank = %(rank)s AND is_open
      AND (partition, id) > (%(after_partition)s::text, %(after_id)s::bigint)
    ORDER BY partition, id LIMIT %(limit)s) AS s
ORDER BY s.partition, s.id LIMIT %(limit)s;

-- Partitions with open subqueues, and some subqueues of each.

-- name: flow_partitions
WITH RECURSIVE {served_routes}, found (partition) AS (
    SELECT min((SELECT s.partition FROM holdfast.subqueues s
                WHERE s.queue = %(queue)s AND s.route = r.id AND s.rank = %(rank)s AND s.is_open
                  AND s.partition >= %(from_partition)s::text
                ORDER BY s.partition LIMIT 1))
    FROM served r
    UNION ALL
    SELECT (SELECT min((SELECT s.partition FROM holdfast.subqueues s
                        WHERE s.queue = %(queue)s AND s.route = r.id AND s.rank = %(rank)s AND s.is_open
                          AND s.partition > f.partition
                        ORDER BY s.partition LIMIT 1))
            FROM served r)
    FROM found f WHERE f.partition IS NOT NULL
)
SELECT partition FROM found WHERE partition IS NOT NULL LIMIT %(limit)s;

-- name: flow_windows
WITH {served_routes}
SELECT s.id, s.partition, s.draws, r.id, s.shut_at
FROM unnest(%(partitions)s::text[], %(places)s::bigint[]) AS p (partition, place) CROSS JOIN served r
CROSS JOIN LATERAL (
    (SELECT id, partition, draws, shut_at FROM holdfast.subqueues
     WHERE queue = %(queue)s AND route = r.id AND rank = %(rank)s AND is_open AND partition = p.partition AND id > p.place
     ORDER BY id LIMIT %(limit)s)
    UNION ALL
    (SELECT id, partition, draws, shut_at FROM holdfast.subqueues
     WHERE queue = %(queue)s AND route = r.id AND rank = %(rank)s AND is_open AND partition = p.partition AND id <= p.place
     ORDER BY id LIMIT %(limit)s)) AS s;

-- The state of keys, which are locked. A locked row is returned as it is now, but the snapshot of this statement may be older: what
-- is in use is counted in a later one. Keys that another claim has locked are left out, or waited for.

-- part: limit_key_states
SELECT k.id, k.name, k.key, k.body, (SELECT l.body FROM holdfast.limits l WHERE l.name = k.name), k.used, k.tokens, k.filled_at
FROM holdfast.limit_keys k WHERE k.id {in_ids} ORDER BY k.id;

-- name: lock_limit_keys
{limit_key_states} FOR NO KEY UPDATE SKIP LOCKED;

-- name: wait_for_limit_keys
{limit_key_states} FOR NO KEY UPDATE;

-- name: read_limit_keys
{limit_key_states};

-- What is in use of each key, and the claims of which nothing is.

-- part: slots_in_use
SELECT s.key_id, s.claim_pos, coalesce(u.used, 0)::bigint AS units FROM holdfast.slots s
CROSS JOIN LATERAL (
    SELECT sum(i.units) AS used FROM unnest(s.jobs, s.units) AS i (job_id, units)
    CROSS JOIN LATERAL (
        SELECT FROM holdfast.jobs j
        WHERE j.id = i.job_id AND CASE WHEN j.claim_pos = s.claim_pos AND j.status IN ('claimed', 'running', 'stalled') THEN true END
        OFFSET 0) AS held) AS u;

-- name: count_slots
{slots_in_use} WHERE s.key_id {in_ids};

-- name: walk_slots
{slots_in_use} WHERE s.key_id > %(after)s ORDER BY s.key_id, s.claim_pos LIMIT %(limit)s;

-- name: limit_usage
SELECT k.name, sum(u.units)::bigint, count(DISTINCT u.key_id) FROM ({slots_in_use}) AS u JOIN holdfast.limit_keys k ON k.id = u.key_id
WHERE u.units > 0 GROUP BY k.name;

-- name: drop_slots
DELETE FROM holdfast.slots s USING unnest(%(keys)s::bigint[], %(positions)s::bigint[]) AS d (key_id, claim_pos)
WHERE s.key_id = d.key_id AND s.claim_pos = d.claim_pos;

-- name: add_slots
INSERT INTO holdfast.slots (key_id, claim_pos, jobs, units)
SELECT i.key_id, i.claim_pos, array_agg(i.job_id), array_agg(i.units)
FROM unnest(%(keys)s::bigint[], %(positions)s::bigint[], %(jobs)s::bigint[], %(units)s::bigint[])
    AS i (key_id, claim_pos, job_id, units)
GROUP BY i.key_id, i.claim_pos;

-- name: save_limit_keys
UPDATE holdfast.limit_keys k SET used = s.used, tokens = s.tokens, filled_at = s.filled_at
FROM unnest(%(keys)s::bigint[], %(used)s::bigint[], %(tokens)s::double precision[], %(filled)s::timestamptz[])
    AS s (id, used, tokens, filled_at)
WHERE k.id = ANY (%(keys)s::bigint[]) AND k.id = s.id;

-- The first jobs of some subqueues, so many of each, and those that are in no subqueue. They are locked.

-- name: pick_jobs
WITH {clock}
SELECT h.id, s.id FROM unnest(%(subqueues)s::bigint[], %(counts)s::integer[]) AS s (id, n)
CROSS JOIN LATERAL (
    SELECT j.id FROM holdfast.jobs j
    WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = %(queue)s AND -j.priority = %(rank)s AND j.subqueue = s.id
      AND j.available_at <= least(%(before_at)s::timestamptz, (SELECT at FROM clock))
    ORDER BY j.available_at, j.id LIMIT s.n FOR NO KEY UPDATE SKIP LOCKED) AS h;

-- name: pick_plain_jobs
WITH {clock}
SELECT j.id FROM holdfast.jobs j
WHERE j.queued AND j.subqueue IS NULL AND j.queue = %(queue)s AND -j.priority = %(rank)s
  AND j.available_at <= least(%(before_at)s::timestamptz, (SELECT at FROM clock))
  AND CASE WHEN %(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]) THEN true END
ORDER BY j.available_at, j.id LIMIT (SELECT %(limit)s::integer) FOR NO KEY UPDATE SKIP LOCKED;

-- Close subqueues without a job that may start now. `until` is when the first of their jobs is available.

-- name: close_empty_subqueues
WITH {clock}, found AS (
    SELECT s.id, (
        SELECT j.available_at FROM holdfast.jobs j
        WHERE {job_of_subqueue}
        ORDER BY j.available_at LIMIT 1) AS next_at
    FROM holdfast.subqueues s WHERE s.id {in_ids}
)
UPDATE holdfast.subqueues s SET is_open = false, shut_key = NULL, shut_at = NULL, until = f.next_at
FROM found f WHERE s.id = f.id AND s.is_open AND (f.next_at IS NULL OR f.next_at > (SELECT at FROM clock));

-- name: shut_subqueues
UPDATE holdfast.subqueues s SET is_open = false, shut_key = c.key, shut_at = c.since, until = c.until
FROM unnest(%(shut)s::bigint[], %(keys)s::bigint[], %(times)s::timestamptz[], %(sinces)s::timestamptz[]) AS c (id, key, until, since)
WHERE s.id = ANY (%(shut)s::bigint[]) AND s.id = c.id;

-- When a worker may get a job of a queue with subqueues: now, if one is open for it or notes are left; else when the first is
-- opened.

-- name: flow_next_at
WITH {clock}, {served_routes}
SELECT CASE WHEN EXISTS (SELECT FROM holdfast.subqueue_notes)
        OR EXISTS (SELECT FROM served r CROSS JOIN LATERAL (
            SELECT FROM holdfast.subqueues WHERE queue = %(queue)s AND route = r.id AND is_open LIMIT 1) AS s)
        OR (SELECT rank FROM ({plain_head}) AS h) IS NOT NULL
    THEN (SELECT at FROM clock) ELSE (
        SELECT min(s.until) FROM served r JOIN holdfast.subqueues s ON s.queue = %(queue)s AND s.route = r.id
        WHERE s.until IS NOT NULL) END;

-- What a diagnosis reads.

-- name: first_places
WITH {clock}
SELECT j.available_at, j.id FROM holdfast.jobs j
WHERE j.queued AND j.subqueue IS NULL AND j.queue = %(queue)s AND -j.priority = -%(priority)s::integer
  AND j.available_at <= (SELECT at FROM clock)
ORDER BY j.available_at, j.id LIMIT %(limit)s;

-- name: first_like
WITH {clock}
SELECT j.available_at, j.id FROM holdfast.jobs j
WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = %(queue)s AND -j.priority = -%(priority)s::integer
  AND j.subqueue = (SELECT own.subqueue FROM holdfast.jobs own WHERE own.id = %(id)s::bigint) AND j.available_at <= (SELECT at FROM clock)
ORDER BY j.available_at, j.id LIMIT %(limit)s;

-- name: has_higher
WITH {clock}
SELECT EXISTS (
    SELECT FROM holdfast.jobs j
    WHERE j.queued AND j.subqueue IS NULL AND j.queue = %(queue)s AND -j.priority < -%(priority)s::integer
      AND j.available_at <= (SELECT at FROM clock))
OR EXISTS (
    SELECT FROM holdfast.jobs j
    WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = %(queue)s AND -j.priority < -%(priority)s::integer
      AND j.available_at <= (SELECT at FROM clock));

-- Jobs that wait for keys of limits: those that are available in subqueues that were closed because of the key.

-- name: waiting_jobs
WITH {clock}
SELECT k.id, f.jobs, (
    SELECT min(g.since) FROM (
        SELECT (
            SELECT greatest(j.available_at, j.created_at) FROM holdfast.jobs j
            WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND -j.priority = s.rank AND j.subqueue = s.id
              AND j.available_at <= (SELECT at FROM clock)
            ORDER BY j.available_at LIMIT 1) AS since
        FROM holdfast.subqueues s WHERE s.shut_key = k.id LIMIT %(limit)s) AS g) AS since
FROM unnest(%(ids)s::bigint[]) AS k (id)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM holdfast.subqueues s
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs j
            WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND -j.priority = s.rank AND j.subqueue = s.id
              AND j.available_at <= (SELECT at FROM clock)
            LIMIT %(limit)s) AS of_subqueue
        WHERE s.shut_key = k.id LIMIT %(limit)s) AS found) AS f
WHERE f.jobs > 0;

-- name: waiting_by_limit
WITH {clock}, shut AS MATERIALIZED (
    SELECT s.id, s.queue, s.rank, k.name
    FROM (SELECT * FROM holdfast.subqueues WHERE shut_key IS NOT NULL LIMIT %(subqueues)s) AS s
    JOIN holdfast.limit_keys k ON k.id = s.shut_key
)
SELECT n.name, (
    SELECT count(*) FROM (
        SELECT FROM shut s
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs j
            WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND -j.priority = s.rank AND j.subqueue = s.id
              AND j.available_at <= (SELECT at FROM clock)
            LIMIT %(limit)s) AS of_subqueue
        WHERE s.name = n.name LIMIT %(limit)s) AS found) AS jobs, (
    SELECT min((
        SELECT greatest(j.available_at, j.created_at) FROM holdfast.jobs j
        WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = s.queue AND -j.priority = s.rank AND j.subqueue = s.id
          AND j.available_at <= (SELECT at FROM clock)
        ORDER BY j.available_at LIMIT 1))
    FROM shut s WHERE s.name = n.name) AS since
FROM (SELECT DISTINCT name FROM shut) AS n;

-- name: routed_jobs
WITH {clock}
SELECT r.queue, r.kind, r.requires, f.jobs, f.since, r.id
FROM (SELECT * FROM holdfast.routes WHERE requires <> '{}' ORDER BY id DESC LIMIT %(routes)s) AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(g.since) AS since FROM (
        SELECT greatest(j.available_at, j.created_at) AS since FROM holdfast.subqueues s
        CROSS JOIN LATERAL (
            SELECT j.available_at, j.created_at FROM holdfast.jobs j
            WHERE {job_of_subqueue}
              AND j.available_at <= (SELECT at FROM clock)
            LIMIT %(limit)s) AS j
        WHERE s.queue = r.queue AND s.route = r.id AND s.is_open
        LIMIT %(limit)s) AS g) AS f
WHERE f.jobs > 0
ORDER BY 1, 2, 3;

-- name: count_jobs_of
SELECT s.id, (
    SELECT count(*) FROM (
        SELECT FROM holdfast.jobs j
        WHERE {job_of_subqueue}
        LIMIT %(limit)s) AS found)
FROM holdfast.subqueues s WHERE s.id {in_ids};
