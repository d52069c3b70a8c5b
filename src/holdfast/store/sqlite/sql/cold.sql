-- Statements that are not hot verbs.

-- The claims of the jobs :jobs. Earlier ones are found by the events that ended them.

-- part: claims_of_jobs
(
    SELECT j.id, j.claim_pos AS pos FROM json_each(:jobs) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
    UNION
    SELECT e.job_id, e.claim_pos FROM json_each(:jobs) wanted CROSS JOIN holdfast_event_rows e ON e.job_id = wanted.value
);

-- The events of the jobs :jobs.

-- part: job_events
(
    SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
        e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
    FROM json_each(:jobs) wanted
    CROSS JOIN holdfast_event_rows e ON e.job_id = wanted.value
    CROSS JOIN holdfast_jobs j ON j.id = e.job_id
    UNION ALL
    SELECT * FROM (
        WITH batches AS MATERIALIZED (
            SELECT b.*, at.id AS job_id,
                instr(replace(replace(b.jobs, '[', ','), ']', ','), ',' || at.id || ',') AS place
            FROM (
                SELECT j.id, j.enqueued_pos AS pos
                FROM json_each(:jobs) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
                UNION ALL
                SELECT c.id, c.pos FROM {claims_of_jobs} c
                UNION ALL
                SELECT c.id, l.pos FROM {claims_of_jobs} c CROSS JOIN holdfast_event_batches l ON l.claim_pos = c.pos
            ) at
            CROSS JOIN holdfast_event_batches b ON b.pos = at.pos
        ), entries AS MATERIALIZED (
            -- The number of commas before the job is its place in the list.
            SELECT *, length(substr(jobs, 1, place)) - length(replace(substr(jobs, 1, place), ',', '')) AS key
            FROM batches WHERE place > 0
        )
        SELECT entry.pos + entry.key * (1 + entry.starts) + step.n, j.id, coalesce(entry.revs ->> entry.key, entry.rev) + step.n,
            iif(step.n, 'started', entry.type), coalesce(entry.times ->> entry.key, entry.received_at), NULL, entry.actor,
            coalesce(entry.attempts ->> entry.key, entry.attempt), iif(step.n, 'claimed', entry.from_status),
            iif(step.n, 'running', entry.to_status),
            iif(step.n, NULL, entry.reason), entry.request_id, entry.cause,
            CASE entry.type WHEN 'enqueued' THEN j.payload WHEN 'succeeded' THEN j.result END,
            iif(step.n, NULL, coalesce(entry.policy_ids ->> entry.key, entry.policy_id)), j.correlation_id, j.trace_id, NULL,
            NULL, NULL
        FROM entries entry
        CROSS JOIN holdfast_jobs j ON j.id = entry.job_id
        CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= entry.starts
    )
);

-- The events after :after and up to :until.

-- part: events_between
(
    SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
        e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
    FROM holdfast_event_rows e CROSS JOIN holdfast_jobs j ON j.id = e.job_id
    WHERE e.pos > :after AND e.pos <= :until
    UNION ALL
    SELECT * FROM (
    SELECT b.pos + i.key * (1 + b.starts) + step.n AS pos, j.id, coalesce(b.revs ->> i.key, b.rev) + step.n,
        iif(step.n, 'started', b.type), coalesce(b.times ->> i.key, b.received_at), NULL, b.actor,
        coalesce(b.attempts ->> i.key, b.attempt), iif(step.n, 'claimed', b.from_status), iif(step.n, 'running', b.to_status),
        iif(step.n, NULL, b.reason), b.request_id, b.cause,
        CASE b.type WHEN 'enqueued' THEN j.payload WHEN 'succeeded' THEN j.result END,
        iif(step.n, NULL, coalesce(b.policy_ids ->> i.key, b.policy_id)), j.correlation_id, j.trace_id, NULL, NULL, NULL
    FROM holdfast_event_batches b
    CROSS JOIN json_each(b.jobs) i
    CROSS JOIN holdfast_jobs j ON j.id = i.value
    CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= b.starts
    WHERE b.pos > :after - 2048 AND b.pos <= :until) WHERE pos > :after AND pos <= :until
);

-- name: load
SELECT j.id, j.queue, j.kind, j.status, j.rev, j.attempt, j.priority, j.available_at, j.created_at, j.updated_at, j.phase,
    j.releases, j.owner, j.incarnation, j.claimed_at, j.lease_expires_at, j.last_beat_at, j.started_at, j.finished_at,
    j.stage, j.progress, j.progressed_at, j.assist_requested, j.counter, j.last_owner, j.last_lease_expires_at, j.last_error,
    j.stall_reason, j.stalled_at, j.revived_at, j.cancel_reason, j.cancel_requested_at, j.reason_code, j.failure_stage,
    j.undo_owed, j.note, j.dedupe_key, j.dedupe_forever, j.correlation_id, j.trace_id, j.token, j.policy_id, j.payload, j.result,
    CASE WHEN j.checkpoint_rev IS NOT NULL THEN coalesce((
        SELECT k.payload FROM holdfast_event_rows k WHERE k.job_id = j.id AND k.rev = j.checkpoint_rev), CAST('missing' AS BLOB)) END,
    CASE WHEN j.waits_for > 0 THEN (
        SELECT group_concat(d.on_id, ',') FROM holdfast_dependencies d JOIN holdfast_jobs o ON o.id = d.on_id
        WHERE d.job_id = j.id AND o.status <> 'succeeded') END
FROM json_each(:ids) wanted
JOIN holdfast_jobs j ON j.id = wanted.value;

-- name: save
UPDATE holdfast_jobs
SET queue = :queue, priority = :priority, queued = (:status = 'queued'), status = :status, rev = :rev, attempt = :attempt,
    available_at = :available_at, updated_at = :updated_at,
    phase = :phase, releases = :releases, owner = :owner, incarnation = :incarnation, claimed_at = :claimed_at,
    lease_expires_at = :lease_expires_at, last_beat_at = :last_beat_at, started_at = :started_at,
    finished_at = :finished_at, stage = :stage, progress = :progress, progressed_at = :progressed_at,
    assist_requested = :assist_requested, counter = :counter, last_owner = :last_owner,
    last_lease_expires_at = :last_lease_expires_at,
    last_error = :last_error, stall_reason = :stall_reason, stalled_at = :stalled_at, revived_at = :revived_at,
    cancel_reason = :cancel_reason, cancel_requested_at = :cancel_requested_at, reason_code = :reason_code,
    failure_stage = :failure_stage, undo_owed = :undo_owed, note = :note, token = :token, policy_id = :policy_id,
    result = coalesce(:result, result),
    checkpoint_rev = coalesce(:checkpoint_rev, checkpoint_rev),
    waits_for = CASE WHEN :status = 'queued' THEN waits_for ELSE 0 END,
    ended = CASE WHEN :status IN ('failed', 'cancelled', 'dead_lettered') THEN :status END,
    live_key = CASE WHEN dedupe_forever OR :status IN ('queued', 'claimed', 'running', 'stalled') THEN dedupe_key END,
    claim_pos = :claim_pos, last_pos = :last_pos
WHERE id = :id;

-- name: claim_of
SELECT claim_pos FROM holdfast_jobs WHERE id = :id;

-- name: key_holder
SELECT id FROM holdfast_jobs WHERE queue = :queue AND live_key = :key AND live_key IS NOT NULL;

-- name: insert_event
INSERT INTO holdfast_event_rows (
    pos, job_id, rev, type, received_at, at, claim_pos, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
    policy_id, key_id, signature, statement)
VALUES (
    :pos, :job_id, :rev, :type, :received_at, :at, :claim_pos, :actor, :attempt, :from_status, :to_status, :reason, :request_id,
    :cause, :payload, :policy_id, :key_id, :signature, :statement);

-- A claim of one job is a batch too, so that every claim is found in one place.

-- name: insert_claim
INSERT INTO holdfast_event_batches (
    pos, received_at, size, rev, attempt, policy_id, type, from_status, to_status, actor, reason, request_id, cause, jobs)
VALUES (
    :pos, :received_at, 1, :rev, :attempt, :policy_id, 'claimed', :from_status, :to_status, :actor, :reason, :request_id, :cause,
    :jobs);

-- name: open_one_claim
INSERT INTO holdfast_open_claims (pos, check_at, size) VALUES (:pos, 0, 1);

-- A job of the claim has changed: the sweeper has to look at it, also if the clock was set back.

-- name: check_claim
UPDATE holdfast_open_claims SET check_at = 0 WHERE pos = :pos;

-- name: checkpoints
SELECT j.id, e.payload
FROM json_each(:ids) wanted
JOIN holdfast_jobs j ON j.id = wanted.value
JOIN holdfast_event_rows e ON e.job_id = j.id AND e.rev = j.checkpoint_rev;

-- name: policies
SELECT id, body FROM holdfast_policies;

-- name: find_policy
SELECT id FROM holdfast_policies WHERE body = :body;

-- name: insert_policy
INSERT INTO holdfast_policies (body, lease_us, check_after_us, token_tail)
VALUES (:body, :lease_us, :check_after_us, :token_tail) RETURNING id;

-- name: settings
SELECT scope, name, body FROM holdfast_settings
WHERE (scope = 'kind' AND name = :kind) OR (scope = 'tier' AND name = :tier)
UNION ALL SELECT 'handler', kind, body FROM holdfast_declarations WHERE kind = :kind;

-- name: upsert_settings
INSERT INTO holdfast_settings (scope, name, body) VALUES (:scope, :name, :body)
ON CONFLICT (scope, name) DO UPDATE SET body = excluded.body;

-- name: drop_settings
DELETE FROM holdfast_settings WHERE scope = :scope AND name = :name;

-- name: upsert_declaration
INSERT INTO holdfast_declarations (kind, queue, body, declared_at, declared_by)
VALUES (:kind, :queue, :body, :declared_at, :declared_by)
ON CONFLICT (kind) DO UPDATE
SET queue = excluded.queue, body = excluded.body, declared_at = excluded.declared_at, declared_by = excluded.declared_by;

-- name: drop_declaration
DELETE FROM holdfast_declarations WHERE kind = :kind;

-- name: find_profile
SELECT id, policy_id FROM holdfast_profiles WHERE kind = :kind AND tier = :tier AND override = :override;

-- name: insert_profile
INSERT INTO holdfast_profiles (kind, tier, override, policy_id) VALUES (:kind, :tier, :override, :policy_id) RETURNING id;

-- name: profiles_of_kind
SELECT id, kind, tier, override FROM holdfast_profiles WHERE kind = :name;

-- name: profiles_of_tier
SELECT id, kind, tier, override FROM holdfast_profiles WHERE tier = :name;

-- name: update_profile
UPDATE holdfast_profiles SET policy_id = :policy_id WHERE id = :id;

-- name: paused
SELECT paused_at FROM holdfast_queues WHERE name = :queue;

-- name: set_paused
INSERT INTO holdfast_queues (name, paused_at, paused_by, pause_reason)
VALUES (:queue, :paused_at, :paused_by, :pause_reason)
ON CONFLICT (name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason;

-- name: pauses
SELECT name, paused_at, paused_by, pause_reason FROM holdfast_queues WHERE paused_at IS NOT NULL ORDER BY name;

-- name: find_requests
SELECT r.actor, r.request_id, r.verb, r.body_hash, r.answer
FROM json_each(:keys) wanted
JOIN holdfast_requests r ON r.actor = wanted.value ->> 0 AND r.request_id = wanted.value ->> 1;

-- name: keep_request
INSERT INTO holdfast_requests (actor, request_id, verb, body_hash, answer, created_at) VALUES (:actor, :request_id, :verb, :body_hash, :answer, :now_at);

-- name: find_event
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM {job_events} e
WHERE e.request_id = :request_id ORDER BY e.rev DESC LIMIT 1;

-- The end of the next page: the position up to which there are `limit` of these events or a few more, and how many, counted by
-- batches. There are none behind it if they are fewer than `limit`.

-- name: page_end
SELECT max(last), coalesce(sum(size), 0) FROM (
    SELECT last, size, sum(size) OVER (ORDER BY last) - size AS before
    FROM (
        SELECT * FROM (
            SELECT b.pos + b.size - 1 AS last, min(b.size, b.pos + b.size - 1 - :after) AS size
            FROM holdfast_event_batches b
            WHERE b.pos > :after - 2048 AND b.pos <= :until AND b.pos + b.size - 1 > :after
              AND (:types IS NULL OR b.type IN (SELECT value FROM json_each(:types))
                   OR (b.starts AND 'started' IN (SELECT value FROM json_each(:types))))
              AND (b.times IS NOT NULL OR ((:since_at IS NULL OR b.received_at >= :since_at)
                                           AND (:until_at IS NULL OR b.received_at < :until_at)))
            ORDER BY b.pos LIMIT :limit)
        UNION ALL
        SELECT * FROM (
            SELECT e.pos, 1 FROM holdfast_event_rows e
            WHERE e.pos > :after AND e.pos <= :until
              AND (:types IS NULL OR e.type IN (SELECT value FROM json_each(:types)))
              AND (:since_at IS NULL OR e.received_at >= :since_at) AND (:until_at IS NULL OR e.received_at < :until_at)
            ORDER BY e.pos LIMIT :limit)
    )
) WHERE before < :limit;

-- name: events
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM {events_between} e
WHERE (:types IS NULL OR e.type IN (SELECT value FROM json_each(:types)))
  AND (:since_at IS NULL OR e.received_at >= :since_at) AND (:until_at IS NULL OR e.received_at < :until_at)
ORDER BY e.pos;

-- Blocks of events that overlap a range of times. high_at never decreases with pos, so this is the order of positions.

-- name: time_blocks
SELECT after_pos, pos FROM holdfast_times INDEXED BY holdfast_times_high
WHERE high_at >= coalesce(:since_at, 0) AND pos > :after
  AND max_at >= coalesce(:since_at, 0) AND min_at < coalesce(:until_at, 9223372036854775807)
ORDER BY high_at, pos;

-- name: last_block
SELECT pos, high_at FROM holdfast_times ORDER BY pos DESC LIMIT 1;

-- name: next_block
SELECT max(last), min(min_at), max(max_at), sum(size) FROM (
    SELECT last, min_at, max_at, size, sum(size) OVER (ORDER BY last) - size AS before
    FROM (
        SELECT * FROM (
            SELECT pos + size - 1 AS last, received_at AS min_at, size,
                coalesce((SELECT max(value) FROM json_each(times)), received_at) AS max_at
            FROM holdfast_event_batches WHERE pos > :after ORDER BY pos LIMIT :size)
        UNION ALL
        SELECT * FROM (
            SELECT pos, received_at, 1, received_at FROM holdfast_event_rows WHERE pos > :after ORDER BY pos LIMIT :size)
    )
) WHERE before < :size;

-- name: insert_block
INSERT INTO holdfast_times (pos, after_pos, min_at, max_at, high_at) VALUES (:pos, :after, :min_at, :max_at, :high_at);

-- Delete the blocks of these positions that have no event any more.

-- name: forget_blocks
DELETE FROM holdfast_times
WHERE pos IN (SELECT (SELECT min(pos) FROM holdfast_times WHERE pos >= gone.value) FROM json_each(:positions) gone)
  AND NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.pos > after_pos AND e.pos <= holdfast_times.pos)
  AND NOT EXISTS (SELECT 1 FROM holdfast_event_batches b WHERE b.pos > after_pos AND b.pos <= holdfast_times.pos);

-- name: events_of_jobs
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM {job_events} e
WHERE e.pos > :after AND (:rev_max IS NULL OR e.rev <= :rev_max)
  AND (:types IS NULL OR e.type IN (SELECT value FROM json_each(:types)))
  AND (:since_at IS NULL OR e.received_at >= :since_at) AND (:until_at IS NULL OR e.received_at < :until_at)
ORDER BY e.pos LIMIT :limit;

-- name: rare_events
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
FROM holdfast_event_rows e INDEXED BY holdfast_event_rows_type JOIN holdfast_jobs j ON j.id = e.job_id
WHERE e.pos > :after
  AND e.type IN (SELECT value FROM json_each(:types)) AND e.type <> 'heartbeat'
  AND e.received_at >= coalesce(:since_at, 0) AND e.received_at < coalesce(:until_at, 9223372036854775807)
ORDER BY e.pos LIMIT :limit;

-- name: jobs_of_correlation
SELECT id FROM holdfast_jobs WHERE correlation_id = :correlation_id AND correlation_id IS NOT NULL ORDER BY id LIMIT 10000;

-- name: uncorrelated
SELECT id FROM holdfast_jobs WHERE id = :id AND correlation_id IS NULL;

-- name: list_jobs
SELECT id FROM holdfast_jobs
WHERE id > :after
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:jobs IS NULL OR id IN (SELECT value FROM json_each(:jobs)))
  AND (:replay_of IS NULL OR replay_of = :replay_of)
  AND (:owner IS NULL OR owner = :owner) AND (:incarnation IS NULL OR incarnation = :incarnation)
  AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
  AND (:running_phases IS NULL OR status <> 'running' OR phase IN (SELECT value FROM json_each(:running_phases)))
ORDER BY id LIMIT :limit;

-- name: list_jobs_newest
SELECT id FROM holdfast_jobs
WHERE id < :after
  AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:jobs IS NULL OR id IN (SELECT value FROM json_each(:jobs)))
  AND (:replay_of IS NULL OR replay_of = :replay_of)
  AND (:owner IS NULL OR owner = :owner) AND (:incarnation IS NULL OR incarnation = :incarnation)
  AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
  AND (:running_phases IS NULL OR status <> 'running' OR phase IN (SELECT value FROM json_each(:running_phases)))
ORDER BY id DESC LIMIT :limit;

-- name: list_active
SELECT id FROM holdfast_active_jobs
WHERE id > :after AND status IN (SELECT value FROM json_each(:statuses))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:owner IS NULL OR owner = :owner) AND (:incarnation IS NULL OR incarnation = :incarnation)
  AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
  AND (:running_phases IS NULL OR status <> 'running' OR phase IN (SELECT value FROM json_each(:running_phases)))
ORDER BY id LIMIT :limit;

-- name: list_active_newest
SELECT id FROM holdfast_active_jobs
WHERE id < :after AND status IN (SELECT value FROM json_each(:statuses))
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
  AND (:owner IS NULL OR owner = :owner) AND (:incarnation IS NULL OR incarnation = :incarnation)
  AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
  AND (:running_phases IS NULL OR status <> 'running' OR phase IN (SELECT value FROM json_each(:running_phases)))
ORDER BY id DESC LIMIT :limit;

-- name: list_ended
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_ended
WHERE ended = :status AND ended IS NOT NULL AND id > :after
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
ORDER BY id LIMIT :limit;

-- name: list_ended_newest
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_ended
WHERE ended = :status AND ended IS NOT NULL AND id < :after
  AND (:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind)
ORDER BY id DESC LIMIT :limit;

-- Which of these jobs match a search. Only the letters A to Z match in either case.

-- name: matching
SELECT j.id FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
WHERE (:since_at IS NULL OR j.created_at >= :since_at) AND (:until_at IS NULL OR j.created_at < :until_at)
  AND (:text IS NULL OR instr(lower(j.kind), lower(:text)) OR instr(lower(j.queue), lower(:text))
       OR instr(lower(j.correlation_id), lower(:text)) OR instr(lower(CAST(j.last_error AS TEXT)), lower(:text))
       OR instr(lower(CAST(j.payload AS TEXT) -> '$.args'), lower(:text)));

-- name: live_replay
SELECT id FROM holdfast_jobs
WHERE replay_of = :job_id AND replay_of IS NOT NULL AND status IN ('queued', 'claimed', 'running', 'stalled')
ORDER BY id LIMIT 1;

-- name: dead_letters
SELECT j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_ended
WHERE j.ended = 'dead_lettered' AND j.ended IS NOT NULL AND j.id > :after
  AND (:queue IS NULL OR j.queue = :queue) AND (:kind IS NULL OR j.kind = :kind)
  AND (:reason_code IS NULL OR j.reason_code = :reason_code)
  AND (:failure_stage IS NULL OR j.failure_stage = :failure_stage)
  AND (:since_at IS NULL OR j.finished_at >= :since_at) AND (:until_at IS NULL OR j.finished_at < :until_at)
  AND (:discarded OR j.note IS NULL
       OR NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.job_id = j.id AND e.type = 'discarded'))
ORDER BY j.id LIMIT :limit;

-- Finished jobs with undo steps left and no unfinished undo job, then jobs whose cascade is not complete.

-- name: owing
SELECT * FROM (
    SELECT j.id, 'undo' FROM holdfast_jobs j INDEXED BY holdfast_jobs_owing
    WHERE j.undo_owed > 0 AND j.finished_at IS NOT NULL
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_jobs u
        WHERE u.queue = j.queue AND u.live_key = :undo_kind || '/' || j.id AND u.live_key IS NOT NULL
          AND u.status IN ('queued', 'claimed', 'running', 'stalled'))
    ORDER BY j.id LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT pos, 'tell' FROM holdfast_cursors WHERE name >= 'tell/' AND name < 'tell0' ORDER BY pos LIMIT :untold_max
)
UNION ALL
SELECT * FROM (
    SELECT pos, 'link' FROM holdfast_cursors
    WHERE name >= 'link/' AND name < 'link0' AND pos > :linked ORDER BY pos LIMIT :untold_max
);

-- name: undo_job
SELECT id FROM holdfast_jobs WHERE queue = :queue AND live_key = :key AND live_key IS NOT NULL;

-- Heartbeats that may carry an undo step. The same bytes may also be part of a checkpoint.

-- name: undo_beats
SELECT payload FROM holdfast_event_rows
WHERE job_id = :job_id AND type = 'heartbeat' AND instr(payload, CAST('"undo":' AS BLOB)) > 0
ORDER BY rev;

-- name: counts
SELECT queue, status, count(*) FROM holdfast_jobs GROUP BY queue, status ORDER BY queue, status;

-- name: event_types
-- A transient error that is retried is reported as `retried`, not as a stall.
SELECT type, sum(count) FROM (
    SELECT CASE WHEN type = 'stalled' AND reason = 'TRANSIENT_ERROR' THEN 'retried' ELSE type END AS type, count(*) AS count
    FROM holdfast_event_rows WHERE pos > :after AND pos <= :until GROUP BY 1
    UNION ALL
    SELECT type, size / (1 + starts) FROM holdfast_event_batches WHERE pos > :after AND pos <= :until
    UNION ALL
    SELECT 'started', size / 2 FROM holdfast_event_batches WHERE pos > :after AND pos <= :until AND starts
) GROUP BY type;

-- name: ended_jobs
SELECT e.pos, j.kind, e.type, j.created_at, j.available_at, j.claimed_at, j.started_at, j.finished_at
FROM {events_between} e CROSS JOIN holdfast_jobs j ON j.id = e.job_id
WHERE e.type IN ('succeeded', 'failed', 'cancelled', 'dead_lettered')
ORDER BY e.pos LIMIT :limit;

-- name: due
SELECT :now_at, d.id, (SELECT pos FROM holdfast_cursors WHERE name = 'fresh'),
    EXISTS (SELECT 1 FROM holdfast_open_claims WHERE check_at <= :now_at)
FROM (SELECT 1) LEFT JOIN (
SELECT j.id FROM holdfast_open_claims c
CROSS JOIN holdfast_event_batches b ON b.pos = c.pos
CROSS JOIN json_each(b.jobs) i
CROSS JOIN holdfast_jobs j ON j.id = i.value AND j.claim_pos = c.pos
CROSS JOIN holdfast_policies p ON p.id = j.policy_id
WHERE c.check_at <= :now_at AND j.status IN ('claimed', 'running', 'stalled') AND j.id > :after
  AND CASE j.status
        WHEN 'stalled' THEN (j.revived_at IS NOT NULL AND j.started_at IS NOT NULL)
            OR j.stalled_at + 1000 * (p.body ->> 'resume_window_ms') <= max(:now_at, j.updated_at)
            OR (j.phase = 'aborting' AND j.cancel_requested_at + 1000 * (p.body ->> 'cancel_grace_ms') < max(:now_at, j.updated_at))
        ELSE j.lease_expires_at < max(:now_at, j.updated_at)
            OR j.last_beat_at + 1000 * (p.body ->> 'heartbeat_interval_ms') * (p.body ->> 'missed_beats_max') < max(:now_at, j.updated_at)
            OR (j.status = 'running' AND j.progressed_at + 1000 * (p.body ->> 'progress_timeout_ms') < max(:now_at, j.updated_at))
            OR (j.phase = 'aborting' AND j.cancel_requested_at + 1000 * (p.body ->> 'cancel_grace_ms') < max(:now_at, j.updated_at))
      END
ORDER BY j.id LIMIT :limit
) d ON true ORDER BY d.id;

-- When the sweeper has to look again at the claims that it has looked at, after five seconds at the latest. NULL: no job of the
-- claim is held or stalled.

-- name: next_checks
SELECT c.pos, min(:now_at + 5000000, (
    SELECT min(CASE j.status
        WHEN 'stalled' THEN iif(j.revived_at IS NULL, min(
            j.stalled_at + 1000 * (p.body ->> 'resume_window_ms'),
            iif(j.phase = 'aborting', j.cancel_requested_at + 1000 * (p.body ->> 'cancel_grace_ms'), 9223372036854775807)),
            j.revived_at)
        ELSE min(
            j.lease_expires_at, j.last_beat_at + 1000 * (p.body ->> 'heartbeat_interval_ms') * (p.body ->> 'missed_beats_max'),
            iif(j.status = 'running', coalesce(j.progressed_at + 1000 * (p.body ->> 'progress_timeout_ms'), 9223372036854775807),
                9223372036854775807),
            iif(j.phase = 'aborting', j.cancel_requested_at + 1000 * (p.body ->> 'cancel_grace_ms'), 9223372036854775807))
        END)
    FROM json_each(b.jobs) i
    CROSS JOIN holdfast_jobs j ON j.id = i.value AND j.claim_pos = c.pos
    CROSS JOIN holdfast_policies p ON p.id = j.policy_id
    WHERE j.status IN ('claimed', 'running', 'stalled')))
FROM holdfast_open_claims c LEFT JOIN holdfast_event_batches b ON b.pos = c.pos
WHERE c.check_at <= :now_at
ORDER BY c.check_at LIMIT :limit;

-- name: tidy_claim
UPDATE holdfast_open_claims SET check_at = :check_at WHERE pos = :pos;

-- name: close_claims
DELETE FROM holdfast_open_claims WHERE pos IN (SELECT value FROM json_each(:positions));

-- Missing heartbeats before this time do not count: the clock was stepped then, or the store was out of reach.

-- name: fresh
SELECT (SELECT pos FROM holdfast_cursors WHERE name = 'fresh'), :now_at;

-- name: cursor
SELECT pos FROM holdfast_cursors WHERE name = :name;

-- name: set_cursor
INSERT INTO holdfast_cursors (name, pos) VALUES (:name, :pos) ON CONFLICT (name) DO UPDATE SET pos = excluded.pos;

-- A job with undo steps left is kept, and so is its undo job: if it were deleted, it would be created again.

-- Jobs by id, with these columns: it did not succeed; it failed or was dead-lettered and is not discarded; it ended before the
-- first time; it ended before the second time; it may be deleted if so; the existing failed job that it replays;
-- it is too new to have ended before either time.

-- name: walk_jobs
SELECT j.id, j.status <> 'succeeded',
    j.status IN ('failed', 'dead_lettered')
        AND (j.note IS NULL OR NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.job_id = j.id AND e.type = 'discarded')),
    j.finished_at < :before_at, j.finished_at < :failed_at,
    j.status IN ('succeeded', 'failed', 'cancelled', 'dead_lettered') AND (j.finished_at < :before_at OR j.finished_at < :failed_at)
    AND j.undo_owed = 0 AND NOT (j.kind = :undo_kind AND EXISTS (
        SELECT 1 FROM holdfast_jobs o WHERE o.undo_owed > 0 AND o.finished_at IS NOT NULL
          AND :undo_kind || '/' || o.id = j.dedupe_key))
    AND j.last_pos <= :sealed AND NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.job_id = j.id AND e.pos > :sealed),
    (SELECT CASE WHEN o.status IN ('failed', 'dead_lettered') THEN o.id END FROM holdfast_jobs o WHERE o.id = j.replay_of AND j.status <> 'cancelled'),
    j.created_at >= :new_at
FROM holdfast_jobs j WHERE j.id > :after ORDER BY j.id LIMIT :limit;

-- name: delete_events
DELETE FROM holdfast_event_rows WHERE job_id IN (SELECT value FROM json_each(:ids)) RETURNING pos;

-- name: delete_jobs
DELETE FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- The batches that these jobs are in. The next statement deletes those of them of which no job is left.

-- name: batches_of_jobs
SELECT pos FROM (
    SELECT enqueued_pos AS pos FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids))
    UNION SELECT claim_pos FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids))
    UNION SELECT claim_pos FROM holdfast_event_rows WHERE job_id IN (SELECT value FROM json_each(:ids))
) WHERE pos IS NOT NULL;

-- name: delete_batches
DELETE FROM holdfast_event_batches
WHERE pos IN (
    SELECT value FROM json_each(:positions)
    UNION ALL SELECT l.pos FROM json_each(:positions) wanted CROSS JOIN holdfast_event_batches l ON l.claim_pos = wanted.value)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(holdfast_event_batches.jobs) i CROSS JOIN holdfast_jobs j ON j.id = i.value)
RETURNING pos;

-- name: walk_beats
SELECT e.pos, CASE WHEN e.type = 'heartbeat' AND e.received_at < :before_at AND e.pos <= :sealed
    AND (EXISTS (SELECT 1 FROM holdfast_event_rows later
                 WHERE later.job_id = e.job_id AND later.rev > e.rev AND later.type = 'heartbeat')
         OR EXISTS (SELECT 1 FROM holdfast_event_batches later CROSS JOIN json_each(later.jobs) i ON i.value = e.job_id
                    WHERE later.type = 'heartbeat' AND later.pos > e.pos AND later.claim_pos IN (
                        SELECT claim_pos FROM holdfast_jobs WHERE id = e.job_id
                        UNION SELECT claim_pos FROM holdfast_event_rows WHERE job_id = e.job_id AND rev >= e.rev)))
    AND NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.id = e.job_id AND j.checkpoint_rev = e.rev)
    THEN e.payload END, e.received_at >= :before_at
FROM holdfast_event_rows e WHERE e.pos > :after AND e.pos <= :until ORDER BY e.pos LIMIT :limit;

-- name: strip_beat
UPDATE holdfast_event_rows SET payload = :payload WHERE pos = :pos;

-- name: prune_requests
DELETE FROM holdfast_requests WHERE (actor, request_id) IN (
    SELECT actor, request_id FROM holdfast_requests WHERE created_at < :before_at LIMIT :limit)
RETURNING 1;
