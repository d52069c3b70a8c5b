-- The hot verbs. Guards are the plain case of `decide`. Commands that do not match are decided one by one.
-- A batch is one statement if possible.

-- Parts of these statements.

-- The jobs of a queue that may be claimed now, in order.

-- part: next_ready
queued AND subqueue IS NULL AND queue = :queue AND available_at <= :now AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY priority DESC, available_at, id;

-- What a claim changes, and the columns that it returns.

-- part: claim_changes
queued = 0, status = :status, phase = :phase, rev = rev + :steps, attempt = attempt + 1, claim_pos = :pos, last_pos = :pos,
owner = :owner, incarnation = :incarnation, token = :token || (
    SELECT p.token_tail FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
policy_id = (SELECT f.policy_id FROM holdfast_profiles f WHERE f.id = profile_id),
updated_at = max(:now, updated_at), claimed_at = max(:now, updated_at), last_beat_at = max(:now, updated_at),
progressed_at = max(:now, updated_at), started_at = CASE WHEN :steps = 2 THEN max(:now, updated_at) END,
lease_expires_at = max(:now, updated_at) + (
    SELECT p.lease_us FROM holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.id = profile_id),
stage = NULL, progress = NULL, assist_requested = 0, counter = NULL, stall_reason = NULL, stalled_at = NULL, revived_at = NULL,
reason_code = NULL, failure_stage = NULL;

-- part: claimed_columns
id, queue, kind, rev, attempt, priority, available_at, created_at, claimed_at, lease_expires_at, releases, last_owner,
last_lease_expires_at, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
checkpoint_rev, undo_owed, payload;

-- The columns that a holder's command is checked against.

-- part: guard_columns
j.id, j.status, j.rev, j.attempt, j.token, j.updated_at, j.lease_expires_at, j.owner, j.incarnation, j.phase,
j.dependents, j.claim_pos, p.lease_us, j.group_id IS NOT NULL OR j.subqueue > 0 AS is_noted;

-- part: guarded_jobs
json_each(?) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
JOIN holdfast_policies p ON p.id = j.policy_id;

-- part: success_changes
live_key = CASE WHEN dedupe_forever OR key_until IS NOT NULL THEN live_key END,
last_owner = owner, owner = NULL, last_lease_expires_at = lease_expires_at, lease_expires_at = NULL;

-- The first statement in a caller's transaction. A deferred transaction takes the write lock here, before it reads anything.

-- name: take_lock
UPDATE holdfast_meta SET value = value WHERE name = 'ledger_id';

-- name: last_pos
SELECT last FROM holdfast_positions;

-- name: set_last_pos
UPDATE holdfast_positions SET last = ?;

-- name: insert_batch
INSERT INTO holdfast_event_batches (
    pos, received_at, claim_pos, size, rev, attempt, policy_id, starts, type, from_status, to_status, actor, reason, request_id,
    jobs, revs, attempts, policy_ids, times)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: last_job_id
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_jobs'), 0);

-- name: insert_job
INSERT INTO holdfast_jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key, live_key,
    dedupe_forever, correlation_id, trace_id, replay_of, enqueued_pos, last_pos, payload)
VALUES (?1, ?2, ?3, 1, 'queued', 1, 0, ?4, ?5, ?6, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);

-- name: insert_placed_job
INSERT INTO holdfast_jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key, live_key,
    dedupe_forever, correlation_id, trace_id, replay_of, enqueued_pos, last_pos, payload, group_id, subqueue)
VALUES (?1, ?2, ?3, 1, 'queued', 1, 0, ?4, ?5, ?6, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17);

-- name: claim
UPDATE holdfast_jobs
SET {claim_changes}
WHERE id IN (
    SELECT id FROM holdfast_jobs
    WHERE {next_ready}
    LIMIT :limit)
RETURNING {claimed_columns};

-- Jobs that were chosen before.

-- name: claim_chosen
UPDATE holdfast_jobs
SET {claim_changes}
WHERE id {in_ids}
RETURNING {claimed_columns};

-- The next jobs, at most two: that is enough to distinguish one job from several.

-- name: next_two
SELECT id FROM holdfast_jobs
WHERE {next_ready}
LIMIT 2;

-- A claim of one job. Building and searching a list of ids, even a short one, takes five times as long.

-- name: claim_lone
UPDATE holdfast_jobs
SET {claim_changes}
WHERE id = :id
RETURNING {claimed_columns};

-- name: open_claim
INSERT INTO holdfast_open_claims (pos, check_at, size)
SELECT :pos, :now + min(5000000, min(check_after_us)), :size FROM holdfast_policies WHERE id IN (SELECT value FROM json_each(:policies));

-- name: close_claim
DELETE FROM holdfast_open_claims WHERE pos = :pos AND size = :ended;

-- name: guards
SELECT {guard_columns}
FROM {guarded_jobs};

-- name: start
UPDATE holdfast_jobs
SET status = 'running', phase = 'executing', rev = ?2, updated_at = ?3, started_at = ?3, last_beat_at = ?3,
    lease_expires_at = ?4, last_pos = ?5
WHERE id = ?1;

-- name: heartbeat
UPDATE holdfast_jobs
SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4, last_pos = ?5,
    progressed_at = CASE WHEN coalesce(?6, stage) IS NOT stage OR coalesce(?7, progress) IS NOT progress
        THEN ?3 ELSE progressed_at END,
    stage = coalesce(?6, stage), progress = coalesce(?7, progress), assist_requested = coalesce(?8, assist_requested)
WHERE id = ?1;

-- name: beat
UPDATE holdfast_jobs SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4, last_pos = ?5 WHERE id = ?1;

-- name: insert_heartbeat
INSERT INTO holdfast_event_rows (
    pos, job_id, rev, type, received_at, claim_pos, actor, attempt, from_status, to_status, request_id, payload)
VALUES (?, ?, ?, 'heartbeat', ?, ?, ?, ?, ?, ?, ?, ?);

-- name: signed_guards
SELECT {guard_columns}, j.counter
FROM {guarded_jobs};

-- name: beat_signed
UPDATE holdfast_jobs
SET rev = ?2, updated_at = ?3, last_beat_at = ?3, lease_expires_at = ?4, last_pos = ?5, counter = ?6,
    progressed_at = CASE WHEN coalesce(?7, stage) IS NOT stage OR coalesce(?8, progress) IS NOT progress
        THEN ?3 ELSE progressed_at END,
    stage = coalesce(?7, stage), progress = coalesce(?8, progress), assist_requested = coalesce(?9, assist_requested)
WHERE id = ?1;

-- name: insert_beat_signed
INSERT INTO holdfast_event_rows (
    pos, job_id, rev, type, received_at, claim_pos, actor, attempt, from_status, to_status, request_id, payload, at, key_id,
    signature, statement)
VALUES (?, ?, ?, 'heartbeat', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: complete
UPDATE holdfast_jobs
SET status = 'succeeded', phase = NULL, rev = ?2, undo_owed = 0, updated_at = ?3, finished_at = ?3, last_pos = ?4, result = ?5,
    {success_changes}
WHERE id = ?1;

-- How many of these jobs of one claim a worker may complete, and what they have in common.

-- name: settle_guards
SELECT count(*), min(j.rev), max(j.rev), max(j.updated_at), min(j.owner), min(j.incarnation), min(j.claim_pos), max(j.claim_pos),
    max(j.group_id IS NOT NULL OR j.subqueue > 0)
FROM json_each(:ids) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
WHERE j.attempt = :attempt AND j.token = :token AND j.status = 'running' AND j.dependents = 0
  AND max(:now, j.updated_at) <= j.lease_expires_at;

-- name: claims_of
SELECT id, claim_pos FROM holdfast_jobs WHERE id {in_ids};

-- Completions of many jobs with one result.

-- name: settle
UPDATE holdfast_jobs
SET status = 'succeeded', phase = NULL, rev = rev + 1, undo_owed = 0, updated_at = max(:now, updated_at),
    finished_at = max(:now, updated_at), last_pos = :pos, result = :result,
    {success_changes}
WHERE id IN (SELECT value FROM json_each(:ids));
