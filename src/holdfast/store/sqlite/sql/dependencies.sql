-- Dependencies. The counts here are not part of the history: changing them does not change a job's revision.

-- name: draw_ids
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_jobs'), 0) + wanted.value
FROM json_each(:numbers) wanted;

-- name: insert_dependencies
INSERT INTO holdfast_dependencies (job_id, on_id)
SELECT edge.value ->> 0, edge.value ->> 1 FROM json_each(:pairs) edge;

-- name: set_waits
UPDATE holdfast_jobs SET waits_for = counted.value ->> 1
FROM json_each(:pairs) counted WHERE holdfast_jobs.id = counted.value ->> 0;

-- name: note_links
INSERT INTO holdfast_cursors (name, pos) SELECT 'link/' || value, value FROM json_each(:ids);

-- name: clear_links
DELETE FROM holdfast_cursors WHERE name IN (SELECT value FROM json_each(:names));

-- name: add_dependents
UPDATE holdfast_jobs SET dependents = dependents + (counted.value ->> 1)
FROM json_each(:pairs) counted WHERE holdfast_jobs.id = counted.value ->> 0
RETURNING id, dependents;

-- name: lock_waiting
SELECT DISTINCT w.id, w.waits_for FROM json_each(:on_ids) wanted
JOIN holdfast_dependencies d ON d.on_id = wanted.value
JOIN holdfast_jobs w ON w.id = d.job_id
WHERE w.waits_for > 0 ORDER BY w.id;

-- Jobs that stopped waiting: they are queued now, or have ended. Nothing else in their rows can have changed.

-- name: save_dependents
UPDATE holdfast_jobs
SET queued = (:status = 'queued'), status = :status,
    ended = CASE WHEN :status IN ('failed', 'cancelled', 'dead_lettered') THEN :status END,
    live_key = CASE WHEN dedupe_forever OR key_until IS NOT NULL OR :status = 'queued' THEN live_key END, last_pos = :last_pos, rev = :rev,
    available_at = :available_at, updated_at = :updated_at, finished_at = :finished_at,
    cancel_reason = :cancel_reason, reason_code = :reason_code, failure_stage = :failure_stage, last_error = :last_error,
    waits_for = 0
WHERE id = :id;

-- name: insert_dependent_events
INSERT INTO holdfast_event_rows (
    pos, job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
VALUES (
    :pos, :job_id, :rev, :type, :received_at, :actor, :attempt, :from_status, :to_status, :reason, :request_id, :cause, :payload);

-- Direct and indirect dependents of these jobs that end when a dependency fails, nearest first. That choice is the last field in
-- the job's payload.

-- name: failing_dependents
WITH RECURSIVE down (id) AS (
    SELECT d.job_id
    FROM json_each(:ids) gone CROSS JOIN holdfast_dependencies d ON d.on_id = gone.value
    WHERE {fails_with_dependency}
    UNION
    SELECT d.job_id
    FROM down CROSS JOIN holdfast_dependencies d ON d.on_id = down.id
    WHERE {fails_with_dependency}
)
SELECT id FROM down LIMIT :limit;

-- Those of these jobs from which `failing_dependents` would find a dependent: their cascade is not complete.

-- name: note_open_cascades
INSERT INTO holdfast_cursors (name, pos)
SELECT DISTINCT 'cascade/' || d.on_id, d.on_id
FROM json_each(:ids) gone CROSS JOIN holdfast_dependencies d ON d.on_id = gone.value
WHERE {fails_with_dependency}
ON CONFLICT (name) DO NOTHING;

-- These jobs and all direct and indirect dependents that still wait.

-- name: downstream
WITH RECURSIVE down (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT d.job_id FROM down JOIN holdfast_dependencies d ON d.on_id = down.id
    JOIN holdfast_jobs w ON w.id = d.job_id AND w.waits_for > 0
)
SELECT id FROM down;

-- name: move_dependents
UPDATE holdfast_dependencies SET on_id = :to_id
WHERE on_id = :from_id
  AND EXISTS (SELECT 1 FROM holdfast_jobs w WHERE w.id = holdfast_dependencies.job_id AND w.waits_for > 0)
RETURNING job_id;

-- Those of these jobs that another job still waits for.

-- name: waited_for
SELECT DISTINCT d.on_id FROM json_each(:ids) wanted
JOIN holdfast_dependencies d ON d.on_id = wanted.value
JOIN holdfast_jobs w ON w.id = d.job_id
WHERE w.waits_for > 0;

-- name: list_waiting
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_waiting
WHERE id > :after AND waits_for > 0
  AND {status_filter} AND {queue_filter} AND {link_filter}
ORDER BY id LIMIT :limit;

-- name: list_waiting_newest
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_waiting
WHERE id < :after AND waits_for > 0
  AND {status_filter} AND {queue_filter} AND {link_filter}
ORDER BY id DESC LIMIT :limit;
