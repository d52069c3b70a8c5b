-- Dependencies. The counts here are not part of the history: changing them does not change a job's revision.

-- name: draw_ids
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_jobs'), 0) + wanted.value
FROM json_each(:numbers) wanted;

-- name: standings
SELECT j.id, j.status, j.rev, (
    SELECT max(r.id) FROM holdfast_jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL)
FROM json_each(:ids) wanted
JOIN holdfast_jobs j ON j.id = wanted.value;

-- name: insert_dependencies
INSERT INTO holdfast_dependencies (job_id, on_id)
SELECT edge.value ->> 0, edge.value ->> 1 FROM json_each(:pairs) edge;

-- name: set_waits
UPDATE holdfast_jobs SET waits_for = counted.value ->> 1
FROM json_each(:pairs) counted WHERE holdfast_jobs.id = counted.value ->> 0;

-- name: count_dependents
SELECT id, dependents FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: depends_on
SELECT job_id, on_id FROM holdfast_dependencies WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: note_links
INSERT INTO holdfast_cursors (name, pos) SELECT 'link/' || value, value FROM json_each(:ids);

-- name: forget_links
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

-- name: meet
UPDATE holdfast_jobs SET waits_for = waits_for - 1 WHERE id IN (SELECT value FROM json_each(:ids));

-- Jobs that stopped waiting: they are queued now, or have ended. Nothing else in their rows can have changed.

-- name: save_told
UPDATE holdfast_jobs
SET queued = (:status = 'queued'), status = :status,
    ended = CASE WHEN :status IN ('failed', 'cancelled', 'dead_lettered') THEN :status END,
    live_key = CASE WHEN dedupe_forever OR :status = 'queued' THEN live_key END, last_pos = :last_pos, rev = :rev, available_at = :available_at, updated_at = :updated_at, finished_at = :finished_at,
    cancel_reason = :cancel_reason, reason_code = :reason_code, failure_stage = :failure_stage, last_error = :last_error,
    waits_for = 0
WHERE id = :id;

-- name: insert_told
INSERT INTO holdfast_event_rows (
    pos, job_id, rev, type, received_at, actor, attempt, from_status, to_status, reason, request_id, cause, payload)
VALUES (
    :pos, :job_id, :rev, :type, :received_at, :actor, :attempt, :from_status, :to_status, :reason, :request_id, :cause, :payload);

-- Direct and indirect dependents of these jobs that end when a dependency fails, nearest first. That choice is the last field in
-- the job's payload.

-- name: falling
WITH RECURSIVE down (id) AS (
    SELECT d.job_id
    FROM json_each(:ids) gone CROSS JOIN holdfast_dependencies d ON d.on_id = gone.value
    WHERE (SELECT w.waits_for > 0 FROM holdfast_jobs w WHERE w.id = d.job_id)
      AND (SELECT substr(w.payload, -length('"on_dependency_failure":"cancel"}')) = CAST('"on_dependency_failure":"cancel"}' AS BLOB)
               OR substr(w.payload, -length('"on_dependency_failure":"dead_letter"}')) = CAST('"on_dependency_failure":"dead_letter"}' AS BLOB)
           FROM holdfast_jobs w WHERE w.id = d.job_id)
    UNION
    SELECT d.job_id
    FROM down CROSS JOIN holdfast_dependencies d ON d.on_id = down.id
    WHERE (SELECT w.waits_for > 0 FROM holdfast_jobs w WHERE w.id = d.job_id)
      AND (SELECT substr(w.payload, -length('"on_dependency_failure":"cancel"}')) = CAST('"on_dependency_failure":"cancel"}' AS BLOB)
               OR substr(w.payload, -length('"on_dependency_failure":"dead_letter"}')) = CAST('"on_dependency_failure":"dead_letter"}' AS BLOB)
           FROM holdfast_jobs w WHERE w.id = d.job_id)
)
SELECT id FROM down LIMIT :limit;

-- Those of these jobs from which `falling` would find a dependent: their cascade is not complete.

-- name: note_untold
INSERT INTO holdfast_cursors (name, pos)
SELECT DISTINCT 'tell/' || d.on_id, d.on_id
FROM json_each(:ids) gone CROSS JOIN holdfast_dependencies d ON d.on_id = gone.value
WHERE (SELECT w.waits_for > 0 FROM holdfast_jobs w WHERE w.id = d.job_id)
  AND (SELECT substr(w.payload, -length('"on_dependency_failure":"cancel"}')) = CAST('"on_dependency_failure":"cancel"}' AS BLOB)
           OR substr(w.payload, -length('"on_dependency_failure":"dead_letter"}')) = CAST('"on_dependency_failure":"dead_letter"}' AS BLOB)
       FROM holdfast_jobs w WHERE w.id = d.job_id)
ON CONFLICT (name) DO NOTHING;

-- name: forget_untold
DELETE FROM holdfast_cursors
WHERE name >= 'tell/' AND name < 'tell0' AND pos IN (SELECT value FROM json_each(:ids));

-- These jobs and all direct and indirect dependents that still wait.

-- name: downstream
WITH RECURSIVE down (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT d.job_id FROM down JOIN holdfast_dependencies d ON d.on_id = down.id
    JOIN holdfast_jobs w ON w.id = d.job_id AND w.waits_for > 0
)
SELECT id FROM down;

-- name: hand_on
UPDATE holdfast_dependencies SET on_id = :to_id
WHERE on_id = :from_id
  AND EXISTS (SELECT 1 FROM holdfast_jobs w WHERE w.id = holdfast_dependencies.job_id AND w.waits_for > 0)
RETURNING job_id;

-- name: dependents
SELECT job_id FROM holdfast_dependencies WHERE on_id = :on_id AND job_id > :after ORDER BY job_id LIMIT :limit;

-- Those of these jobs that another job still waits for.

-- name: waited_for
SELECT DISTINCT d.on_id FROM json_each(:ids) wanted
JOIN holdfast_dependencies d ON d.on_id = wanted.value
JOIN holdfast_jobs w ON w.id = d.job_id
WHERE w.waits_for > 0;

-- name: delete_dependencies
DELETE FROM holdfast_dependencies
WHERE job_id IN (SELECT value FROM json_each(:ids)) OR on_id IN (SELECT value FROM json_each(:ids));

-- name: list_waiting
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_waiting
WHERE id > :after AND waits_for > 0
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:jobs IS NULL OR id IN (SELECT value FROM json_each(:jobs)))
  AND (:replay_of IS NULL OR replay_of = :replay_of)
ORDER BY id LIMIT :limit;

-- name: list_waiting_newest
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_waiting
WHERE id < :after AND waits_for > 0
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:jobs IS NULL OR id IN (SELECT value FROM json_each(:jobs)))
  AND (:replay_of IS NULL OR replay_of = :replay_of)
ORDER BY id DESC LIMIT :limit;
