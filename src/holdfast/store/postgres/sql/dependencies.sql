-- Dependencies. The counts here are not part of the history: changing them does not change a job's revision.

-- name: draw_ids
SELECT nextval('holdfast.job_id') FROM unnest(%(numbers)s::integer[]);

-- name: insert_dependencies
INSERT INTO holdfast.dependencies (job_id, on_id)
SELECT job_id, on_id FROM unnest(%(lefts)s::bigint[], %(rights)s::bigint[]) AS edge (job_id, on_id);

-- name: set_waits
UPDATE holdfast.jobs j SET waits_for = counted.count
FROM unnest(%(lefts)s::bigint[], %(rights)s::integer[]) AS counted (id, count) WHERE j.id = counted.id;

-- Jobs that their dependencies do not count yet. The sweeper links them later.

-- name: note_links
INSERT INTO holdfast.cursors (name, pos) SELECT 'link/' || id, id FROM unnest(%(ids)s::bigint[]) AS late (id);

-- name: clear_links
DELETE FROM holdfast.cursors WHERE name = ANY (%(names)s::text[]);

-- The caller has locked these rows, in order.

-- name: add_dependents
UPDATE holdfast.jobs j SET dependents = j.dependents + counted.count
FROM unnest(%(lefts)s::bigint[], %(rights)s::integer[]) AS counted (id, count) WHERE j.id = counted.id
RETURNING j.id, j.dependents;

-- Rows are locked in ascending order. Their values are those after the lock was acquired.

-- name: lock_waiting
SELECT w.id, w.waits_for FROM holdfast.jobs w
WHERE w.id = ANY (ARRAY (SELECT d.job_id FROM holdfast.dependencies d WHERE d.on_id = ANY (%(on_ids)s::bigint[])))
  AND w.waits_for > 0
ORDER BY w.id FOR NO KEY UPDATE;

-- Jobs that stopped waiting: they are queued now, or have ended. Nothing else in their rows can have changed.

-- name: save_dependents
UPDATE holdfast.jobs j
SET queued = (changed.status = 'queued'), status = changed.status,
    ended = CASE WHEN changed.status IN ('failed', 'cancelled', 'dead_lettered') THEN changed.status END,
    live_key = CASE WHEN j.dedupe_forever OR j.key_until IS NOT NULL OR changed.status = 'queued' THEN j.live_key END,
    last_pos = nextval('holdfast.event_pos'), rev = changed.rev, available_at = changed.available_at,
    updated_at = changed.updated_at, finished_at = changed.finished_at, cancel_reason = changed.cancel_reason, reason_code = changed.reason_code,
    failure_stage = changed.failure_stage, last_error = changed.last_error, waits_for = 0
FROM unnest(
    %(id)s::bigint[], %(status)s::text[], %(rev)s::integer[], %(available_at)s::timestamptz[], %(updated_at)s::timestamptz[],
    %(finished_at)s::timestamptz[], %(cancel_reason)s::text[], %(reason_code)s::text[], %(failure_stage)s::text[],
    %(last_error)s::bytea[]
) AS changed (
    id, status, rev, available_at, updated_at, finished_at, cancel_reason, reason_code, failure_stage, last_error)
WHERE j.id = changed.id;

-- name: insert_dependent_events
INSERT INTO holdfast.event_rows (
    pos, job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
SELECT j.last_pos + row_number() OVER (PARTITION BY j.id ORDER BY changed.rev) - 1, changed.job_id, changed.rev, changed.type,
    changed.received_at, changed.actor, changed.attempt, changed.from_status, changed.to_status, changed.reason,
    changed.request_id, changed.cause, changed.payload
FROM unnest(
    %(job_id)s::bigint[], %(rev)s::integer[], %(type)s::text[], %(received_at)s::timestamptz[], %(actor)s::text[],
    %(attempt)s::integer[], %(from_status)s::text[], %(to_status)s::text[], %(reason)s::text[], %(request_id)s::text[],
    %(cause)s::text[], %(payload)s::bytea[]
) AS changed (job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
JOIN holdfast.jobs j ON j.id = changed.job_id;

-- Direct and indirect dependents of these jobs that end when a dependency fails, nearest first. That choice is the last field in
-- the job's payload. Here and below, the statements force index lookups by key in each step, independent of the
-- planner's estimates: in a long chain, any other plan would read a whole table at every step.

-- name: failing_dependents
WITH RECURSIVE down (id) AS (
    SELECT d.job_id
    FROM unnest(%(ids)s::bigint[]) AS gone (id)
    CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = gone.id OFFSET 0) d
    WHERE {fails_with_dependency}
    UNION
    SELECT d.job_id
    FROM down
    CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = down.id OFFSET 0) d
    WHERE {fails_with_dependency}
)
SELECT id FROM down LIMIT %(limit)s;

-- Those of these jobs from which `failing_dependents` would find a dependent: their cascade is not complete.

-- name: note_open_cascades
INSERT INTO holdfast.cursors (name, pos)
SELECT DISTINCT 'cascade/' || gone.id, gone.id
FROM unnest(%(ids)s::bigint[]) AS gone (id)
CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = gone.id OFFSET 0) d
WHERE {fails_with_dependency}
ON CONFLICT (name) DO NOTHING;

-- These jobs and all direct and indirect dependents that still wait.

-- name: downstream
WITH RECURSIVE down (id) AS (
    SELECT unnest(%(ids)s::bigint[])
    UNION
    SELECT d.job_id
    FROM down
    CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = down.id OFFSET 0) d
    WHERE (SELECT w.waits_for > 0 FROM holdfast.jobs w WHERE w.id = d.job_id)
)
SELECT id FROM down;

-- name: move_dependents
UPDATE holdfast.dependencies d SET on_id = %(to_id)s
WHERE d.on_id = %(from_id)s AND EXISTS (SELECT 1 FROM holdfast.jobs w WHERE w.id = d.job_id AND w.waits_for > 0)
RETURNING d.job_id;

-- Those of these jobs that another job still waits for.

-- name: waited_for
SELECT DISTINCT d.on_id FROM holdfast.dependencies d
JOIN holdfast.jobs w ON w.id = d.job_id
WHERE d.on_id {in_ids} AND w.waits_for > 0;

-- name: list_waiting
SELECT id FROM holdfast.jobs
WHERE id > %(after)s AND waits_for > 0
  AND {status_filter} AND {queue_filter} AND {link_filter}
ORDER BY id LIMIT %(limit)s;

-- name: list_waiting_newest
SELECT id FROM holdfast.jobs
WHERE id < %(after)s AND waits_for > 0
  AND {status_filter} AND {queue_filter} AND {link_filter}
ORDER BY id DESC LIMIT %(limit)s;
