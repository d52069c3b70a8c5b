-- Dependencies. The counts here are not part of the history: changing them does not change a job's revision.

-- name: draw_ids
SELECT nextval('holdfast.job_id') FROM unnest(%(numbers)s::integer[]);

-- name: standings
SELECT j.id, j.status, j.rev, (
    SELECT max(r.id) FROM holdfast.jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL)
FROM unnest(%(ids)s::bigint[]) AS wanted (id)
JOIN holdfast.jobs j ON j.id = wanted.id;

-- name: insert_dependencies
INSERT INTO holdfast.dependencies (job_id, on_id)
SELECT job_id, on_id FROM unnest(%(lefts)s::bigint[], %(rights)s::bigint[]) AS edge (job_id, on_id);

-- name: set_waits
UPDATE holdfast.jobs j SET waits_for = counted.count
FROM unnest(%(lefts)s::bigint[], %(rights)s::integer[]) AS counted (id, count) WHERE j.id = counted.id;

-- name: count_dependents
SELECT id, dependents FROM holdfast.jobs WHERE id = ANY (%(ids)s::bigint[]);

-- name: depends_on
SELECT job_id, on_id FROM holdfast.dependencies WHERE job_id = ANY (%(ids)s::bigint[]);

-- Jobs that their dependencies do not count yet. The sweeper links them later.

-- name: note_links
INSERT INTO holdfast.cursors (name, pos) SELECT 'link/' || id, id FROM unnest(%(ids)s::bigint[]) AS late (id);

-- name: forget_links
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

-- name: meet
UPDATE holdfast.jobs SET waits_for = waits_for - 1 WHERE id = ANY (%(ids)s::bigint[]);

-- Jobs that stopped waiting: they are queued now, or have ended. Nothing else in their rows can have changed.

-- name: save_told
UPDATE holdfast.jobs j
SET queued = (told.status = 'queued'), status = told.status,
    ended = CASE WHEN told.status IN ('failed', 'cancelled', 'dead_lettered') THEN told.status END,
    live_key = CASE WHEN j.dedupe_forever OR told.status = 'queued' THEN j.live_key END,
    last_pos = nextval('holdfast.event_pos'), rev = told.rev, available_at = told.available_at, updated_at = told.updated_at,
    finished_at = told.finished_at, cancel_reason = told.cancel_reason, reason_code = told.reason_code,
    failure_stage = told.failure_stage, last_error = told.last_error, waits_for = 0
FROM unnest(
    %(id)s::bigint[], %(status)s::text[], %(rev)s::integer[], %(available_at)s::timestamptz[], %(updated_at)s::timestamptz[],
    %(finished_at)s::timestamptz[], %(cancel_reason)s::text[], %(reason_code)s::text[], %(failure_stage)s::text[],
    %(last_error)s::bytea[]
) AS told (
    id, status, rev, available_at, updated_at, finished_at, cancel_reason, reason_code, failure_stage, last_error)
WHERE j.id = told.id;

-- name: insert_told
INSERT INTO holdfast.event_rows (
    pos, job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
SELECT j.last_pos + row_number() OVER (PARTITION BY j.id ORDER BY told.rev) - 1, told.job_id, told.rev, told.type,
    told.received_at, told.actor, told.attempt, told.from_status, told.to_status, told.reason, told.request_id, told.cause,
    told.payload
FROM unnest(
    %(job_id)s::bigint[], %(rev)s::integer[], %(type)s::text[], %(received_at)s::timestamptz[], %(actor)s::text[],
    %(attempt)s::integer[], %(from_status)s::text[], %(to_status)s::text[], %(reason)s::text[], %(request_id)s::text[],
    %(cause)s::text[], %(payload)s::bytea[]
) AS told (job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
JOIN holdfast.jobs j ON j.id = told.job_id;

-- Direct and indirect dependents of these jobs that end when a dependency fails, nearest first. That choice is the last field in
-- the job's payload. Here and below, the statements force index lookups by key in each step, independent of the
-- planner's estimates: in a long chain, any other plan would read a whole table at every step.

-- name: falling
WITH RECURSIVE down (id) AS (
    SELECT d.job_id
    FROM unnest(%(ids)s::bigint[]) AS gone (id)
    CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = gone.id OFFSET 0) d
    WHERE (SELECT w.waits_for > 0 FROM holdfast.jobs w WHERE w.id = d.job_id)
      AND (SELECT w.payload LIKE '%%"on_dependency_failure":"cancel"}'::bytea
               OR w.payload LIKE '%%"on_dependency_failure":"dead_letter"}'::bytea
           FROM holdfast.jobs w WHERE w.id = d.job_id)
    UNION
    SELECT d.job_id
    FROM down
    CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = down.id OFFSET 0) d
    WHERE (SELECT w.waits_for > 0 FROM holdfast.jobs w WHERE w.id = d.job_id)
      AND (SELECT w.payload LIKE '%%"on_dependency_failure":"cancel"}'::bytea
               OR w.payload LIKE '%%"on_dependency_failure":"dead_letter"}'::bytea
           FROM holdfast.jobs w WHERE w.id = d.job_id)
)
SELECT id FROM down LIMIT %(limit)s;

-- Those of these jobs from which `falling` would find a dependent: their cascade is not complete.

-- name: note_untold
INSERT INTO holdfast.cursors (name, pos)
SELECT DISTINCT 'tell/' || gone.id, gone.id
FROM unnest(%(ids)s::bigint[]) AS gone (id)
CROSS JOIN LATERAL (SELECT job_id FROM holdfast.dependencies WHERE on_id = gone.id OFFSET 0) d
WHERE (SELECT w.waits_for > 0 FROM holdfast.jobs w WHERE w.id = d.job_id)
  AND (SELECT w.payload LIKE '%%"on_dependency_failure":"cancel"}'::bytea
           OR w.payload LIKE '%%"on_dependency_failure":"dead_letter"}'::bytea
       FROM holdfast.jobs w WHERE w.id = d.job_id)
ON CONFLICT (name) DO NOTHING;

-- name: forget_untold
DELETE FROM holdfast.cursors WHERE name >= 'tell/' AND name < 'tell0' AND pos = ANY (%(ids)s::bigint[]);

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

-- name: hand_on
UPDATE holdfast.dependencies d SET on_id = %(to_id)s
WHERE d.on_id = %(from_id)s AND EXISTS (SELECT 1 FROM holdfast.jobs w WHERE w.id = d.job_id AND w.waits_for > 0)
RETURNING d.job_id;

-- name: dependents
SELECT job_id FROM holdfast.dependencies WHERE on_id = %(on_id)s AND job_id > %(after)s ORDER BY job_id LIMIT %(limit)s;

-- Those of these jobs that another job still waits for.

-- name: waited_for
SELECT DISTINCT d.on_id FROM holdfast.dependencies d
JOIN holdfast.jobs w ON w.id = d.job_id
WHERE d.on_id = ANY (%(ids)s::bigint[]) AND w.waits_for > 0;

-- name: delete_dependencies
DELETE FROM holdfast.dependencies WHERE job_id = ANY (%(ids)s::bigint[]) OR on_id = ANY (%(ids)s::bigint[]);

-- name: list_waiting
SELECT id FROM holdfast.jobs
WHERE id > %(after)s AND waits_for > 0
  AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(jobs)s::bigint[] IS NULL OR id = ANY (%(jobs)s::bigint[]))
  AND (%(replay_of)s::bigint IS NULL OR replay_of = %(replay_of)s::bigint)
ORDER BY id LIMIT %(limit)s;

-- name: list_waiting_newest
SELECT id FROM holdfast.jobs
WHERE id < %(after)s AND waits_for > 0
  AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(jobs)s::bigint[] IS NULL OR id = ANY (%(jobs)s::bigint[]))
  AND (%(replay_of)s::bigint IS NULL OR replay_of = %(replay_of)s::bigint)
ORDER BY id DESC LIMIT %(limit)s;
