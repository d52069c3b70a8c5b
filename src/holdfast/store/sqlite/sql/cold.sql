-- Statements that are not hot verbs.

-- name: load
SELECT {job_columns},
    CASE WHEN j.checkpoint_rev IS NOT NULL THEN coalesce((
        SELECT k.payload FROM holdfast_event_rows k WHERE k.job_id = j.id AND k.rev = j.checkpoint_rev), CAST('missing' AS BLOB)) END,
    CASE WHEN j.waits_for > 0 THEN (
        SELECT group_concat(d.on_id, ',') FROM holdfast_dependencies d JOIN holdfast_jobs o ON o.id = d.on_id
        WHERE d.job_id = j.id AND o.status <> 'succeeded') END
FROM {wanted_jobs};

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
    live_key = CASE WHEN dedupe_forever OR key_until IS NOT NULL OR :status IN ('queued', 'claimed', 'running', 'stalled')
        THEN live_key END,
    subqueue = CASE WHEN :status = 'queued' THEN :subqueue ELSE subqueue END,
    claim_pos = :claim_pos, last_pos = :last_pos
WHERE id = :id
RETURNING subqueue;

-- name: set_window
UPDATE holdfast_jobs SET key_until = :until_at WHERE id = :id;

-- name: claim_of
SELECT claim_pos FROM holdfast_jobs WHERE id = :id;

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

-- name: insert_policy
INSERT INTO holdfast_policies (body, lease_us, check_after_us, token_tail)
VALUES (:body, :lease_us, :check_after_us, :token_tail) RETURNING id;

-- name: find_requests
SELECT r.actor, r.request_id, r.verb, r.body_hash, r.answer
FROM json_each(:keys) wanted
JOIN holdfast_requests r ON r.actor = wanted.value ->> 0 AND r.request_id = wanted.value ->> 1;

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
              AND {event_filter}
            ORDER BY e.pos LIMIT :limit)
    )
) WHERE before < :limit;

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

-- name: rare_events
SELECT {event_row_columns}
FROM holdfast_event_rows e INDEXED BY holdfast_event_rows_type JOIN holdfast_jobs j ON j.id = e.job_id
WHERE e.pos > :after
  AND e.type IN (SELECT value FROM json_each(:types)) AND e.type <> 'heartbeat'
  AND e.received_at >= coalesce(:since_at, 0) AND e.received_at < coalesce(:until_at, 9223372036854775807)
ORDER BY e.pos LIMIT :limit;

-- name: list_ended
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_ended
WHERE ended = :status AND ended IS NOT NULL AND id > :after
  AND {queue_filter}
ORDER BY id LIMIT :limit;

-- name: list_ended_newest
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_ended
WHERE ended = :status AND ended IS NOT NULL AND id < :after
  AND {queue_filter}
ORDER BY id DESC LIMIT :limit;

-- Which of these jobs match a search. Only the letters A to Z match in either case.

-- name: matching
SELECT j.id FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
WHERE (:since_at IS NULL OR {searched_time} >= :since_at) AND (:until_at IS NULL OR {searched_time} < :until_at)
  AND (:text IS NULL OR instr(lower(j.kind), lower(:text)) OR instr(lower(j.queue), lower(:text))
       OR instr(lower(j.correlation_id), lower(:text)) OR instr(lower(j.dedupe_key), lower(:text)) OR instr(lower(CAST(j.last_error AS TEXT)), lower(:text))
       OR instr(lower(CAST(j.payload AS TEXT) -> '$.args'), lower(:text)));

-- name: dead_letters
SELECT j.id FROM holdfast_jobs j INDEXED BY holdfast_jobs_ended
WHERE j.ended = 'dead_lettered' AND j.ended IS NOT NULL AND j.id > :after
  AND (:queue IS NULL OR j.queue = :queue) AND (:kind IS NULL OR j.kind = :kind)
  AND (:reason_code IS NULL OR j.reason_code = :reason_code)
  AND (:failure_stage IS NULL OR j.failure_stage = :failure_stage)
  AND (:since_at IS NULL OR j.finished_at >= :since_at) AND (:until_at IS NULL OR j.finished_at < :until_at)
  AND (:discarded OR {not_discarded})
ORDER BY j.id LIMIT :limit;

-- Finished jobs with undo steps left and no unfinished undo job, then jobs whose cascade is not complete, then jobs that their
-- dependencies do not count yet, then jobs that their own worker did not take in time.

-- name: unfinished_jobs
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
    SELECT pos, 'cascade' FROM holdfast_cursors WHERE name >= 'cascade/' AND name < 'cascade0' ORDER BY pos LIMIT :batch_max
)
UNION ALL
SELECT * FROM (
    SELECT pos, 'link' FROM holdfast_cursors
    WHERE name >= 'link/' AND name < 'link0' AND pos > :linked ORDER BY pos LIMIT :batch_max
);

-- Heartbeats that may carry an undo step. The same bytes may also be part of a checkpoint.

-- name: undo_beats
SELECT payload FROM holdfast_event_rows
WHERE job_id = :job_id AND type = 'heartbeat' AND instr(payload, CAST('"undo":' AS BLOB)) > 0
ORDER BY rev;

-- name: due
WITH {policy_times}
SELECT :now_at AS now, d.id, (SELECT pos FROM holdfast_cursors WHERE name = 'fresh') AS fresh_since,
    EXISTS (SELECT 1 FROM holdfast_open_claims WHERE check_at <= :now_at) AS has_checks,
    EXISTS (SELECT 1 FROM holdfast_schedules WHERE fire_at <= :now_at) AS has_firings,
    EXISTS (SELECT 1 FROM holdfast_group_changes) AS has_group_changes
FROM (SELECT 1) LEFT JOIN (
SELECT j.id FROM holdfast_open_claims c
CROSS JOIN holdfast_event_batches b ON b.pos = c.pos
CROSS JOIN json_each(b.jobs) i
CROSS JOIN holdfast_jobs j ON j.id = i.value AND j.claim_pos = c.pos
CROSS JOIN times p ON p.id = j.policy_id
WHERE c.check_at <= :now_at AND j.status IN ('claimed', 'running', 'stalled') AND j.id > :after
  AND {is_due}
ORDER BY j.id LIMIT :limit
) d ON true ORDER BY d.id;

-- When the sweeper has to look again at the claims that it has looked at, after five seconds at the latest. NULL: no job of the
-- claim is held or stalled.

-- name: next_checks
WITH {policy_times}
SELECT c.pos, min(:now_at + 5000000, (
    SELECT min(CASE j.status
        WHEN 'stalled' THEN iif(j.revived_at IS NULL, min(
            {resume_deadline},
            iif(j.phase = 'aborting', {cancel_deadline}, 9223372036854775807)),
            j.revived_at)
        ELSE min(
            j.lease_expires_at, {beat_deadline},
            iif(j.status = 'running', coalesce({progress_deadline}, 9223372036854775807),
                9223372036854775807),
            iif(j.phase = 'aborting', {cancel_deadline}, 9223372036854775807))
        END)
    FROM json_each(b.jobs) i
    CROSS JOIN holdfast_jobs j ON j.id = i.value AND j.claim_pos = c.pos
    CROSS JOIN times p ON p.id = j.policy_id
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
SELECT pos FROM holdfast_cursors WHERE name = 'fresh';

-- The batches that these jobs are in. The next statement deletes those of them of which no job is left.

-- name: batches_of_jobs
SELECT pos FROM (
    SELECT enqueued_pos AS pos FROM holdfast_jobs WHERE id {in_ids}
    UNION SELECT claim_pos FROM holdfast_jobs WHERE id {in_ids}
    UNION SELECT claim_pos FROM holdfast_event_rows WHERE job_id {in_ids}
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
