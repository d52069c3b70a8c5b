-- The hot verbs. Guards are the plain case of `decide`. Commands that do not match are decided one by one.
-- A batch is one statement if possible: every run of an update first builds small tables from the lists in the constraints and in
-- the partial indexes, which costs as much as the update itself. Events are then written from the updated rows.

-- The first statement in a caller's transaction. A deferred transaction takes the write lock here, before it reads anything.

-- name: take_lock
UPDATE holdfast_meta SET value = value WHERE name = 'ledger_id';

-- name: last_job_id
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_jobs'), 0);

-- name: insert_job
INSERT INTO holdfast_jobs (
    id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key,
    dedupe_forever, correlation_id, trace_id, replay_of)
VALUES (?, ?, ?, 'queued', 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_enqueued
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, to_status, reason, request_id, payload, correlation_id)
VALUES (?, 1, 'enqueued', ?, ?, 0, 'queued', ?, ?, ?, ?);

-- name: find_dedupe
SELECT id, created_at FROM holdfast_jobs
WHERE queue = ? AND dedupe_key = ? AND dedupe_key IS NOT NULL
  AND (dedupe_forever = 1 OR status IN ('queued', 'claimed', 'running', 'stalled'));

-- name: claim
UPDATE holdfast_jobs
SET status = :status, phase = :phase, rev = rev + :steps, attempt = attempt + 1,
    owner = :owner, incarnation = :incarnation, token = :token || (
        SELECT p.token_tail FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
    policy_id = (SELECT f.policy_id FROM holdfast_profiles f WHERE f.id = profile_id),
    updated_at = max(:now, updated_at), claimed_at = max(:now, updated_at), last_beat_at = max(:now, updated_at),
    progressed_at = max(:now, updated_at), started_at = CASE WHEN :steps = 2 THEN max(:now, updated_at) END,
    lease_expires_at = max(:now, updated_at) + (
        SELECT p.lease_us FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
    stage = NULL, progress = NULL, assist_requested = 0, counter = NULL, stall_reason = NULL, stalled_at = NULL, revived_at = NULL,
    reason_code = NULL, failure_stage = NULL
WHERE id IN (
    SELECT id FROM holdfast_jobs
    WHERE status = 'queued' AND queue = :queue AND available_at <= :now
      AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY priority DESC, available_at, id
    LIMIT :limit)
RETURNING id, queue, kind, rev, attempt, priority, available_at, created_at, claimed_at, lease_expires_at, releases, last_owner,
    last_lease_expires_at, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
    checkpoint_rev, undo_owed, (SELECT e.payload FROM holdfast_events e WHERE e.job_id = holdfast_jobs.id AND e.rev = 1);

-- The next jobs, at most two: that is enough to distinguish one job from several.

-- name: next_two
SELECT id FROM holdfast_jobs
WHERE status = 'queued' AND queue = :queue AND available_at <= :now
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY priority DESC, available_at, id
LIMIT 2;

-- A claim of one job. Building and searching a list of ids, even a short one, takes five times as long.

-- name: claim_lone
UPDATE holdfast_jobs
SET status = :status, phase = :phase, rev = rev + :steps, attempt = attempt + 1,
    owner = :owner, incarnation = :incarnation, token = :token || (
        SELECT p.token_tail FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
    policy_id = (SELECT f.policy_id FROM holdfast_profiles f WHERE f.id = profile_id),
    updated_at = max(:now, updated_at), claimed_at = max(:now, updated_at), last_beat_at = max(:now, updated_at),
    progressed_at = max(:now, updated_at), started_at = CASE WHEN :steps = 2 THEN max(:now, updated_at) END,
    lease_expires_at = max(:now, updated_at) + (
        SELECT p.lease_us FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
    stage = NULL, progress = NULL, assist_requested = 0, counter = NULL, stall_reason = NULL, stalled_at = NULL, revived_at = NULL,
    reason_code = NULL, failure_stage = NULL
WHERE id = :id
RETURNING id, queue, kind, rev, attempt, priority, available_at, created_at, claimed_at, lease_expires_at, releases, last_owner,
    last_lease_expires_at, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
    checkpoint_rev, undo_owed, (SELECT e.payload FROM holdfast_events e WHERE e.job_id = holdfast_jobs.id AND e.rev = 1);

-- name: insert_claimed
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, policy_id)
SELECT j.id, j.rev - (:steps - step.n), step.type, j.claimed_at, :actor, j.attempt, step.from_status, step.to_status, :request,
    CASE step.n WHEN 1 THEN j.policy_id END
FROM json_each(:ids) wanted
CROSS JOIN holdfast_jobs j ON j.id = wanted.value
CROSS JOIN (
    SELECT 1 AS n, 'claimed' AS type, 'queued' AS from_status, 'claimed' AS to_status
    UNION ALL SELECT 2, 'started', 'claimed', 'running'
) step
WHERE step.n <= :steps;

-- name: insert_started
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id)
VALUES (?, ?, 'started', ?, ?, ?, 'claimed', 'running', ?);

-- name: guards
SELECT j.id, j.status, j.rev, j.attempt, j.token, j.updated_at, j.lease_expires_at, j.owner, j.incarnation, j.phase,
    j.dependents, p.lease_us
FROM json_each(?) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
JOIN holdfast_policies p ON p.id = j.policy_id;

-- name: start
UPDATE holdfast_jobs
SET status = 'running', phase = 'executing', rev = ?2, updated_at = ?3, started_at = ?3, last_beat_at = ?3,
    lease_expires_at = ?4
WHERE id = ?1;

-- name: heartbeat
UPDATE holdfast_jobs
SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4,
    progressed_at = CASE WHEN coalesce(?5, stage) IS NOT stage OR coalesce(?6, progress) IS NOT progress
        THEN ?3 ELSE progressed_at END,
    stage = coalesce(?5, stage), progress = coalesce(?6, progress), assist_requested = coalesce(?7, assist_requested)
WHERE id = ?1;

-- name: beat
UPDATE holdfast_jobs SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4 WHERE id = ?1;

-- name: insert_heartbeat
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
VALUES (?, ?, 'heartbeat', ?, ?, ?, ?, ?, ?, ?);

-- name: signed_guards
SELECT j.id, j.status, j.rev, j.attempt, j.token, j.updated_at, j.lease_expires_at, j.owner, j.incarnation, j.phase,
    j.dependents, p.lease_us, j.counter
FROM json_each(?) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
JOIN holdfast_policies p ON p.id = j.policy_id;

-- name: beat_signed
UPDATE holdfast_jobs
SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4, counter = ?5,
    progressed_at = CASE WHEN coalesce(?6, stage) IS NOT stage OR coalesce(?7, progress) IS NOT progress
        THEN ?3 ELSE progressed_at END,
    stage = coalesce(?6, stage), progress = coalesce(?7, progress), assist_requested = coalesce(?8, assist_requested)
WHERE id = ?1;

-- name: insert_beat_signed
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload, at, key_id, signature, statement)
VALUES (?, ?, 'heartbeat', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: complete
UPDATE holdfast_jobs
SET status = 'succeeded', phase = NULL, rev = ?2, result_rev = ?2, undo_owed = 0, updated_at = ?3, finished_at = ?3,
    last_owner = owner, owner = NULL, last_lease_expires_at = lease_expires_at, lease_expires_at = NULL
WHERE id = ?1;

-- name: insert_succeeded
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
VALUES (?, ?, 'succeeded', ?, ?, ?, 'running', 'succeeded', ?, ?);

-- A worker's completions in bulk. :payloads has the payloads by job of all completions with one request id.

-- name: settle
UPDATE holdfast_jobs
SET status = 'succeeded', phase = NULL, rev = rev + 1, result_rev = rev + 1, undo_owed = 0,
    updated_at = max(:now, updated_at), finished_at = max(:now, updated_at),
    last_owner = owner, owner = NULL, last_lease_expires_at = lease_expires_at, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_settled
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
SELECT j.id, j.rev, 'succeeded', j.updated_at, 'worker:' || j.last_owner || '#' || j.incarnation, j.attempt, 'running',
    'succeeded', :request, CAST(done.value AS BLOB)
FROM json_each(:payloads) done
CROSS JOIN holdfast_jobs j ON j.id = CAST(done.key AS INTEGER);
