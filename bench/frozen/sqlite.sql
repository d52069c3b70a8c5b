-- Copies of the hot statements that the raw loops run. Frozen on purpose: they are not changed with the
-- statements they were taken from, so that figures of different days have the same measure.

-- name: last_job_id
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_jobs'), 0);

-- name: insert_job
INSERT INTO holdfast_jobs (
    id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key,
    dedupe_forever, correlation_id, trace_id, replay_of)
VALUES (?, ?, ?, 'queued', 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_enqueued
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, to_status, request_id, payload, correlation_id)
VALUES (?, 1, 'enqueued', ?, ?, 0, 'queued', ?, ?, ?);

-- name: claim
UPDATE holdfast_jobs
SET status = :status, phase = :phase, rev = rev + :steps, attempt = attempt + 1,
    owner = :owner, incarnation = :incarnation, token = :token,
    policy_id = (SELECT f.policy_id FROM holdfast_profiles f WHERE f.id = profile_id),
    updated_at = max(:now, updated_at), claimed_at = max(:now, updated_at), last_beat_at = max(:now, updated_at),
    progressed_at = max(:now, updated_at), started_at = CASE WHEN :steps = 2 THEN max(:now, updated_at) END,
    lease_expires_at = max(:now, updated_at) + (
        SELECT p.lease_us FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
    stage = NULL, progress = NULL, assist_requested = 0, stall_reason = NULL, stalled_at = NULL, revived_at = NULL
WHERE id IN (
    SELECT id FROM holdfast_jobs
    WHERE status = 'queued' AND queue = :queue AND available_at <= :now
      AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY priority DESC, available_at, id
    LIMIT :limit)
RETURNING id, queue, kind, rev, attempt, priority, available_at, created_at, claimed_at, lease_expires_at, releases, last_owner,
    last_lease_expires_at, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
    (SELECT e.payload FROM holdfast_events e WHERE e.job_id = holdfast_jobs.id AND e.rev = 1);

-- name: insert_claimed
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, policy_id)
VALUES (?, ?, 'claimed', ?, ?, ?, 'queued', 'claimed', ?, ?);

-- name: insert_started
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id)
VALUES (?, ?, 'started', ?, ?, ?, 'claimed', 'running', ?);

-- name: guards
SELECT j.id, j.status, j.rev, j.attempt, j.token, j.updated_at, j.lease_expires_at, j.owner, j.incarnation, j.phase,
    p.lease_us
FROM json_each(?) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
JOIN holdfast_policies p ON p.id = j.policy_id;

-- name: beat
UPDATE holdfast_jobs SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4 WHERE id = ?1;

-- name: insert_heartbeat
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
VALUES (?, ?, 'heartbeat', ?, ?, ?, ?, ?, ?, ?);

-- name: complete
UPDATE holdfast_jobs
SET status = 'succeeded', phase = NULL, rev = ?2, result_rev = ?2, updated_at = ?3, finished_at = ?3,
    last_owner = owner, owner = NULL, last_lease_expires_at = lease_expires_at, lease_expires_at = NULL
WHERE id = ?1;

-- name: insert_succeeded
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
VALUES (?, ?, 'succeeded', ?, ?, ?, 'running', 'succeeded', ?, ?);
