-- Statements that are not hot verbs.

-- name: load
SELECT {job_columns},
    CASE WHEN j.checkpoint_rev IS NOT NULL THEN coalesce((
        SELECT k.payload FROM holdfast.event_rows k WHERE k.job_id = j.id AND k.rev = j.checkpoint_rev), 'missing') END,
    CASE WHEN j.waits_for > 0 THEN (
        SELECT string_agg(d.on_id::text, ',') FROM holdfast.dependencies d JOIN holdfast.jobs o ON o.id = d.on_id
        WHERE d.job_id = j.id AND o.status <> 'succeeded') END
FROM {wanted_jobs};

-- Rows are locked FOR NO KEY UPDATE: a transaction that has added a dependent to a job holds FOR KEY SHARE on that job until
-- it ends, and must not block changes of the job.

-- name: lock_jobs
SELECT id FROM holdfast.jobs WHERE id {in_ids} ORDER BY id FOR NO KEY UPDATE;

-- Lock without waiting. Returns the jobs that another transaction has locked.

-- name: try_lock
WITH mine AS (
    SELECT id FROM holdfast.jobs WHERE id {in_ids} ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id FROM holdfast.jobs WHERE id {in_ids} AND id NOT IN (SELECT id FROM mine);

-- The same for jobs that are to be deleted: another transaction may hold them FOR KEY SHARE.

-- name: try_lock_unshared
WITH mine AS (
    SELECT id FROM holdfast.jobs WHERE id {in_ids} ORDER BY id FOR UPDATE SKIP LOCKED
)
SELECT id FROM holdfast.jobs WHERE id {in_ids} AND id NOT IN (SELECT id FROM mine);

-- The row is checked again after a wait: none is returned if the job has lost the key meanwhile.

-- name: lock_key_holder
SELECT id FROM holdfast.jobs WHERE queue = %(queue)s AND live_key = %(key)s AND live_key IS NOT NULL FOR NO KEY UPDATE;

-- Keep the rows from being deleted until this transaction ends. This blocks no other change to them.

-- name: share_jobs
SELECT id FROM holdfast.jobs WHERE id {in_ids} ORDER BY id FOR KEY SHARE SKIP LOCKED;

-- name: save
WITH place AS MATERIALIZED (
    SELECT nextval('holdfast.event_pos') AS pos, claim_pos FROM holdfast.jobs WHERE id = %(id)s
)
UPDATE holdfast.jobs j
SET queue = %(queue)s, priority = %(priority)s, queued = (%(status)s = 'queued'), status = %(status)s, rev = %(rev)s,
    attempt = %(attempt)s, available_at = %(available_at)s, updated_at = %(updated_at)s,
    phase = %(phase)s, releases = %(releases)s, owner = %(owner)s, incarnation = %(incarnation)s, claimed_at = %(claimed_at)s,
    lease_expires_at = %(lease_expires_at)s, last_beat_at = %(last_beat_at)s, started_at = %(started_at)s,
    finished_at = %(finished_at)s, stage = %(stage)s, progress = %(progress)s, progressed_at = %(progressed_at)s,
    assist_requested = %(assist_requested)s, counter = %(counter)s, last_owner = %(last_owner)s,
    last_lease_expires_at = %(last_lease_expires_at)s,
    last_error = %(last_error)s, stall_reason = %(stall_reason)s, stalled_at = %(stalled_at)s, revived_at = %(revived_at)s,
    cancel_reason = %(cancel_reason)s, cancel_requested_at = %(cancel_requested_at)s, reason_code = %(reason_code)s,
    failure_stage = %(failure_stage)s, undo_owed = %(undo_owed)s, note = %(note)s, token = %(token)s, policy_id = %(policy_id)s,
    result = coalesce(%(result)s, j.result),
    checkpoint_rev = coalesce(%(checkpoint_rev)s::integer, checkpoint_rev),
    waits_for = CASE WHEN %(status)s = 'queued' THEN waits_for ELSE 0 END,
    ended = CASE WHEN %(status)s IN ('failed', 'cancelled', 'dead_lettered') THEN %(status)s END,
    live_key = CASE WHEN dedupe_forever OR key_until IS NOT NULL OR %(status)s IN ('queued', 'claimed', 'running', 'stalled')
        THEN live_key END,
    subqueue = CASE WHEN %(status)s = 'queued' THEN %(subqueue)s::bigint ELSE j.subqueue END,
    claim_pos = coalesce(place.pos + %(claim_offset)s::integer, j.claim_pos), last_pos = place.pos
FROM place
WHERE j.id = %(id)s
RETURNING j.last_pos, place.claim_pos, j.subqueue;

-- A claim of one job is a batch too, so that every claim is found in one place.

-- name: insert_claim
WITH opened AS (
    INSERT INTO holdfast.open_claims (pos, check_at, size) VALUES (%(pos)s, '-infinity', 1)
)
INSERT INTO holdfast.event_batches (
    pos, received_at, size, rev, attempt, policy_id, type, from_status, to_status, actor, reason, request_id, cause, jobs)
VALUES (
    %(pos)s, %(received_at)s, 1, %(rev)s, %(attempt)s, %(policy_id)s, 'claimed', %(from_status)s, %(to_status)s, %(actor)s,
    %(reason)s, %(request_id)s, %(cause)s, ARRAY[%(job_id)s::bigint]);

-- The claim has ended if it had just this one job. The sweeper closes the others.

-- name: close_claim
DELETE FROM holdfast.open_claims
WHERE pos = (SELECT pos FROM holdfast.open_claims WHERE pos = %(pos)s AND size = %(ended)s FOR UPDATE SKIP LOCKED);

-- A job of the claim has changed: the sweeper has to look at it, also if the clock was set back. A row that another transaction
-- has locked is left alone.

-- name: check_claim
UPDATE holdfast.open_claims SET check_at = '-infinity'
WHERE pos = (SELECT pos FROM holdfast.open_claims WHERE pos = %(pos)s FOR UPDATE SKIP LOCKED);

-- name: insert_policy
INSERT INTO holdfast.policies (body, lease, check_after, token_tail)
VALUES (%(body)s, %(lease_us)s * interval '1 microsecond', %(check_after_us)s * interval '1 microsecond', %(token_tail)s)
RETURNING id;

-- name: find_requests
SELECT r.actor, r.request_id, r.verb, r.body_hash, r.answer
FROM unnest(%(actors)s::text[], %(requests)s::text[]) AS wanted (actor, request_id)
JOIN holdfast.requests r ON r.actor = wanted.actor AND r.request_id = wanted.request_id;

-- A request id belongs to one transaction at a time. This does not wait: it returns false if another transaction has the id.

-- name: take_requests
SELECT name, pg_try_advisory_xact_lock(hashtextextended('holdfast.requests ' || name, 0))
FROM unnest(%(names)s::text[]) AS k (name);

-- The end of the next page: the position up to which there are `limit` of these events or a few more, and how many, counted by
-- batches. There are none behind it if they are fewer than `limit`.

-- name: page_end
SELECT max(last), coalesce(sum(size), 0)::bigint FROM (
    SELECT last, size, sum(size) OVER (ORDER BY pos) - size AS before
    FROM (
        (SELECT b.pos, b.pos + b.size - 1 AS last, least(b.size, b.pos + b.size - 1 - %(after)s) AS size
         FROM holdfast.event_batches b
         WHERE b.pos > %(after)s - 2048 AND b.pos <= %(until)s AND b.pos + b.size - 1 > %(after)s
           AND (%(types)s::text[] IS NULL OR b.type = ANY (%(types)s::text[])
                OR (b.starts AND 'started' = ANY (%(types)s::text[])))
           AND (b.times IS NOT NULL OR (b.received_at >= coalesce(%(since_at)s::timestamptz, '-infinity')
                                        AND b.received_at < coalesce(%(until_at)s::timestamptz, 'infinity')))
         ORDER BY b.pos LIMIT %(limit)s)
        UNION ALL
        (SELECT e.pos, e.pos, 1
         FROM holdfast.event_rows e
         WHERE e.pos > %(after)s AND e.pos <= %(until)s
           AND {event_filter}
         ORDER BY e.pos LIMIT %(limit)s)
    ) AS found
) AS counted
WHERE before < %(limit)s;

-- name: rare_events
SELECT {event_row_columns}
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.pos > %(after)s
  AND e.type = ANY (%(types)s::text[]) AND e.type <> 'heartbeat'
  AND e.received_at >= coalesce(%(since_at)s::timestamptz, '-infinity')
  AND e.received_at < coalesce(%(until_at)s::timestamptz, 'infinity')
ORDER BY e.pos LIMIT %(limit)s;

-- name: list_ended
SELECT id FROM holdfast.jobs
WHERE ended = %(status)s AND ended IS NOT NULL AND id > %(after)s
  AND {queue_filter}
ORDER BY id LIMIT %(limit)s;

-- name: list_ended_newest
SELECT id FROM holdfast.jobs
WHERE ended = %(status)s AND ended IS NOT NULL AND id < %(after)s
  AND {queue_filter}
ORDER BY id DESC LIMIT %(limit)s;

-- Which of these jobs match a search. Only the letters A to Z match in either case. PostgreSQL cannot parse JSON with the
-- escape \u0000, so an event with such escapes is searched as a whole.

-- name: matching
SELECT j.id FROM holdfast.jobs j
WHERE j.id {in_ids}
  AND (%(since_at)s::timestamptz IS NULL OR {searched_time} >= %(since_at)s::timestamptz)
  AND (%(until_at)s::timestamptz IS NULL OR {searched_time} < %(until_at)s::timestamptz)
  AND (%(text)s::text IS NULL
       OR strpos(lower(j.kind COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
       OR strpos(lower(j.queue COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
       OR strpos(lower(j.correlation_id COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
       OR strpos(lower(j.dedupe_key COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
       OR strpos(lower(convert_from(j.last_error, 'UTF8') COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
       OR strpos(lower(CASE WHEN strpos(convert_from(j.payload, 'UTF8'), '\u') > 0 THEN convert_from(j.payload, 'UTF8')
                          ELSE convert_from(j.payload, 'UTF8')::json ->> 'args' END COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0);

-- name: dead_letters
SELECT j.id FROM holdfast.jobs j
WHERE j.ended = 'dead_lettered' AND j.id > %(after)s
  AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR j.kind = %(kind)s::text)
  AND (%(reason_code)s::text IS NULL OR j.reason_code = %(reason_code)s::text)
  AND (%(failure_stage)s::text IS NULL OR j.failure_stage = %(failure_stage)s::text)
  AND j.finished_at >= coalesce(%(since_at)s::timestamptz, '-infinity')
  AND j.finished_at < coalesce(%(until_at)s::timestamptz, 'infinity')
  AND (%(discarded)s OR {not_discarded})
ORDER BY j.id LIMIT %(limit)s;

-- Finished jobs with undo steps left and no unfinished undo job, then jobs whose cascade is not complete, then jobs that their
-- dependencies do not count yet, then jobs that their own worker did not take in time.

-- name: unfinished_jobs
(
    SELECT j.id, 'undo' FROM holdfast.jobs j
    WHERE j.undo_owed > 0 AND j.finished_at IS NOT NULL
      AND NOT EXISTS (
        SELECT 1 FROM holdfast.jobs u
        WHERE u.queue = j.queue AND u.live_key = %(undo_kind)s::text || '/' || j.id AND u.live_key IS NOT NULL
          AND u.status IN ('queued', 'claimed', 'running', 'stalled'))
    ORDER BY j.id LIMIT %(limit)s
)
UNION ALL
(SELECT pos, 'cascade' FROM holdfast.cursors WHERE name >= 'cascade/' AND name < 'cascade0' ORDER BY pos LIMIT %(batch_max)s)
UNION ALL
(SELECT pos, 'link' FROM holdfast.cursors
 WHERE name >= 'link/' AND name < 'link0' AND pos > %(linked)s ORDER BY pos LIMIT %(batch_max)s);

-- Heartbeats that may carry an undo step. The same bytes may also be part of a checkpoint.

-- name: undo_beats
SELECT payload FROM holdfast.event_rows
WHERE job_id = %(job_id)s AND type = 'heartbeat' AND position('"undo":'::bytea IN payload) > 0
ORDER BY rev;

-- name: due
WITH {clock}, {policy_times}
SELECT clock.at AS now, d.id, (SELECT {fresh_since}) AS fresh_since,
    EXISTS (SELECT FROM holdfast.open_claims c WHERE c.check_at <= clock.at) AS has_checks,
    EXISTS (SELECT FROM holdfast.schedules s WHERE s.fire_at <= clock.at) AS has_firings,
    EXISTS (SELECT FROM holdfast.group_changes) AS has_group_changes
FROM clock LEFT JOIN (
SELECT j.id
FROM holdfast.open_claims c
CROSS JOIN LATERAL (SELECT jobs FROM holdfast.event_batches WHERE pos = c.pos OFFSET 0) AS b
JOIN holdfast.jobs j ON j.id = ANY (b.jobs)
JOIN times p ON p.id = j.policy_id
WHERE c.check_at <= (SELECT at FROM clock) AND j.claim_pos = c.pos AND j.status IN ('claimed', 'running', 'stalled')
  AND j.id > %(after)s
  AND {is_due}
ORDER BY j.id LIMIT %(limit)s
) d ON true ORDER BY d.id;

-- When the sweeper has to look again at the claims that it has looked at: after five seconds at the latest, in case a change that
-- wants an earlier look could not be noted. A claim of which no job is held or stalled is closed.

-- name: tidy_claims
WITH {clock}, {policy_times}, looked AS MATERIALIZED (
    SELECT c.pos, c.check_at, (
        SELECT min(CASE j.status
            WHEN 'stalled' THEN CASE WHEN j.revived_at IS NULL THEN least(
                {resume_deadline}, CASE j.phase WHEN 'aborting' THEN {cancel_deadline} END)
                ELSE j.revived_at END
            ELSE least(
                j.lease_expires_at, {beat_deadline},
                CASE j.status WHEN 'running' THEN {progress_deadline} END,
                CASE j.phase WHEN 'aborting' THEN {cancel_deadline} END)
            END)
        FROM holdfast.jobs j JOIN times p ON p.id = j.policy_id
        WHERE j.id = ANY (b.jobs) AND j.claim_pos = c.pos AND j.status IN ('claimed', 'running', 'stalled')) AS next_at
    FROM holdfast.open_claims c LEFT JOIN holdfast.event_batches b ON b.pos = c.pos
    WHERE c.check_at <= (SELECT at FROM clock)
    ORDER BY c.check_at LIMIT %(limit)s
    FOR UPDATE OF c SKIP LOCKED
), closed AS (
    DELETE FROM holdfast.open_claims c USING looked l WHERE c.pos = l.pos AND l.next_at IS NULL
)
UPDATE holdfast.open_claims c SET check_at = least(l.next_at, (SELECT at FROM clock) + interval '5 s')
FROM looked l WHERE c.pos = l.pos AND l.next_at > l.check_at;

-- Missing heartbeats before this time do not count: the clock was stepped then, or the store was out of reach. The start of the
-- server is such a time as well.

-- name: fresh
SELECT {fresh_since};

-- The batches that these jobs are in. The next statement deletes those of them of which no job is left.

-- name: batches_of_jobs
SELECT DISTINCT pos FROM (
    SELECT enqueued_pos FROM holdfast.jobs WHERE id {in_ids}
    UNION SELECT claim_pos FROM holdfast.jobs WHERE id {in_ids}
    UNION SELECT claim_pos FROM holdfast.event_rows WHERE job_id {in_ids}
) AS found (pos) WHERE pos IS NOT NULL;

-- name: delete_batches
DELETE FROM holdfast.event_batches b
WHERE b.pos IN (
    SELECT unnest(%(positions)s::bigint[])
    UNION ALL SELECT l.pos FROM holdfast.event_batches l WHERE l.claim_pos = ANY (%(positions)s::bigint[]))
  AND NOT EXISTS (SELECT FROM unnest(b.jobs) AS i (job_id) JOIN holdfast.jobs j ON j.id = i.job_id)
RETURNING b.pos;

-- Jobs of which another transaction has locked an event, a batch or a dependency. All other such rows of these jobs are locked.

-- name: with_locked_parts
WITH claims AS (
    SELECT id AS job_id, enqueued_pos AS pos FROM holdfast.jobs WHERE id = ANY (%(ids)s::bigint[])
    UNION SELECT id, claim_pos FROM holdfast.jobs WHERE id = ANY (%(ids)s::bigint[])
    UNION SELECT job_id, claim_pos FROM holdfast.event_rows WHERE job_id = ANY (%(ids)s::bigint[])
), parts AS (
    SELECT job_id, pos FROM claims
    UNION SELECT c.job_id, l.pos FROM claims c CROSS JOIN LATERAL (
        SELECT pos FROM holdfast.event_batches WHERE claim_pos = c.pos OFFSET 0) AS l
), free_batches AS (
    SELECT pos FROM holdfast.event_batches WHERE pos = ANY (ARRAY (SELECT pos FROM parts)) FOR UPDATE SKIP LOCKED
), free_rows AS (
    SELECT pos FROM holdfast.event_rows WHERE job_id = ANY (%(ids)s::bigint[]) FOR UPDATE SKIP LOCKED
), free_dependencies AS (
    SELECT job_id, on_id FROM holdfast.dependencies
    WHERE job_id = ANY (%(ids)s::bigint[]) OR on_id = ANY (%(ids)s::bigint[]) FOR UPDATE SKIP LOCKED
)
SELECT p.job_id FROM parts p
WHERE p.pos NOT IN (SELECT pos FROM free_batches) AND EXISTS (SELECT FROM holdfast.event_batches b WHERE b.pos = p.pos)
UNION SELECT job_id FROM holdfast.event_rows
WHERE job_id = ANY (%(ids)s::bigint[]) AND pos NOT IN (SELECT pos FROM free_rows)
UNION SELECT unnest(ARRAY[job_id, on_id]) FROM holdfast.dependencies
WHERE (job_id = ANY (%(ids)s::bigint[]) OR on_id = ANY (%(ids)s::bigint[]))
  AND (job_id, on_id) NOT IN (SELECT job_id, on_id FROM free_dependencies);

-- name: walk_beats
SELECT e.pos, CASE WHEN e.type = 'heartbeat' AND e.received_at < %(before_at)s AND e.pos <= %(sealed)s
    AND (EXISTS (SELECT FROM holdfast.event_rows later
                 WHERE later.job_id = e.job_id AND later.rev > e.rev AND later.type = 'heartbeat')
         OR EXISTS (SELECT FROM holdfast.event_batches later
                    WHERE later.type = 'heartbeat' AND later.pos > e.pos AND e.job_id = ANY (later.jobs)
                      AND later.claim_pos = ANY (ARRAY (
                        SELECT claim_pos FROM holdfast.jobs WHERE id = e.job_id
                        UNION SELECT claim_pos FROM holdfast.event_rows WHERE job_id = e.job_id AND rev >= e.rev))))
    AND NOT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.id = e.job_id AND j.checkpoint_rev = e.rev)
    THEN e.payload END, e.received_at >= %(before_at)s
FROM holdfast.event_rows e WHERE e.pos > %(after)s AND e.pos <= %(until)s ORDER BY e.pos LIMIT %(limit)s;

-- name: strip_beat
UPDATE holdfast.event_rows SET payload = %(payload)s
WHERE pos = (SELECT pos FROM holdfast.event_rows WHERE pos = %(pos)s FOR UPDATE SKIP LOCKED);

-- Rows that other transactions have locked are skipped until the next run.

-- name: prune_requests
DELETE FROM holdfast.requests WHERE (actor, request_id) IN (
    SELECT actor, request_id FROM holdfast.requests WHERE created_at < %(before_at)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: lock_settings
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.settings', 0));

-- Called again afterwards to restore the caller's setting.

-- name: swap_lock_timeout
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %(wanted)s, true);

-- The session that has locked a job's row, in a transaction of at least this age. A row locker's transaction id is the row's xmax.
-- Without the role pg_read_all_stats, sessions of other accounts have neither a state nor an age.

-- name: lock_holder
SELECT {session_text}
FROM holdfast.jobs j
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = j.xmax AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE j.id = %(job_id)s
  AND coalesce(a.xact_start <= clock_timestamp() - make_interval(secs => %(seconds)s), %(seconds)s::float8 = 0);

-- The oldest three sessions that have locked a table of this ledger or an advisory lock for a second or longer. It reads no table
-- of the ledger. A session that only reads is listed if it has locked a whole table.

-- name: lock_holders
SELECT {session_text}
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND coalesce(a.xact_start <= clock_timestamp() - interval '1 s', true)
  AND EXISTS (
    SELECT FROM pg_locks l
    WHERE l.pid = a.pid AND l.granted AND l.mode <> 'AccessShareLock'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.locktype = 'advisory' OR l.relation IN (
            SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s)))
ORDER BY a.xact_start, a.pid LIMIT 3;

-- name: now
SELECT clock_timestamp();

-- name: notify
SELECT pg_notify(%(channel)s, name) FROM unnest(%(queues)s::text[]) AS q (name);

-- The stable position. A writer gets its transaction id before it draws a position. So every transaction that drew a position up to
-- `last_value` has an id below the one that this statement takes. Once a snapshot's xmin is above it, they have all ended.

-- name: horizon
SELECT last_value + 2047, pg_current_xact_id()::text::bigint FROM holdfast.event_pos WHERE is_called;

-- name: last_pos
SELECT last_value + 2047 FROM holdfast.event_pos WHERE is_called;

-- name: xmin
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- The jobs of an enqueue that was a transaction of its own, in their order. Its batch is at most some minutes old.

-- name: enqueued_with_nonce
SELECT i.job_id, b.received_at
FROM holdfast.event_batches b CROSS JOIN LATERAL unnest(b.jobs) AS i (job_id)
WHERE b.nonce = %(nonce)s AND b.received_at > %(since_at)s
ORDER BY i.job_id;

-- name: is_backend_busy
SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = %(pid)s AND datname = current_database() AND state <> 'idle';

-- name: xact_status
SELECT pg_xact_status(%(xid)s::text::xid8);

-- The identity of the server. After a promotion, the names of WAL files have the new timeline at once. The control file has the
-- old one until the next checkpoint.

-- name: identity
SELECT s.system_identifier,
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
FROM pg_control_system() s;

-- name: has_ledger
SELECT to_regclass('holdfast.meta') IS NOT NULL;

-- name: ledger_id
SELECT value FROM holdfast.meta WHERE name = 'ledger_id';

-- The ledger's id in a caller's transaction. It also assigns a transaction id, which is needed before a position is drawn.

-- name: join_transaction
SELECT value, pg_current_xact_id()::text FROM holdfast.meta WHERE name = 'ledger_id';
