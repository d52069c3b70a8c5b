-- The hot verbs: set-based, with guards in their WHERE. Commands that do not match a guard are decided one by one.
-- Jobs are looked up by primary key only. Their other conditions are in a CASE: without statistics, as in a new ledger, the
-- planner would take each of them for rare, and read the whole table for the few rows that it expects. Arrays arrive sorted by
-- job, so that rows are locked in one order.
-- A claim says which queue it reads by a lower and an upper bound, its kinds in a CASE, and its limit in a subselect. Otherwise
-- the planner, without statistics, would expect few jobs, read all that are ready, and sort them.
-- The clock is read once, in a CTE, and always used through a subselect: a join would scan it for each row.
-- An injected clock comes as a parameter.
-- `place` draws the position of a statement. The transaction gets its id first, so that followers wait for it. Statements that
-- draw it before they lock their jobs change only jobs whose last position is lower; `decide` handles the others.
-- A batch has the values that all its jobs share, and arrays only for those that differ.
-- An enqueue with a channel sends a notification when it commits.

-- Parts of these statements. `clock` and `job_now` are in parts.sql.

-- part: place
place AS MATERIALIZED (
    SELECT pg_current_xact_id(), nextval('holdfast.event_pos') AS pos
);

-- part: enqueued_columns
id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key, live_key,
dedupe_forever, correlation_id, trace_id, replay_of, group_id, subqueue, enqueued_pos, last_pos, payload;

-- The jobs of a list of commands, and the guards that the plain case of a holder's command needs: it is the holder's attempt, its
-- lease has not expired, no later position was drawn for the job, and the job has the revision that the caller expects.

-- part: of_input
j.id = ANY (%(ids)s::bigint[]) AND j.id = i.id;

-- part: has_fence
j.attempt = i.attempt AND j.token = i.token;

-- part: is_held
{job_now} <= j.lease_expires_at AND j.last_pos < (SELECT pos FROM place);

-- part: is_expected
(i.expected_rev IS NULL OR i.expected_rev = j.rev);

-- What a heartbeat changes, and what the fields of one change.

-- part: new_lease
{job_now} + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id);

-- part: beat_changes
rev = j.rev + 1, last_pos = (SELECT pos FROM place), updated_at = {job_now}, last_beat_at = {job_now},
lease_expires_at = {new_lease};

-- part: progress_changes
progressed_at = CASE
    WHEN coalesce(i.stage, j.stage) IS DISTINCT FROM j.stage OR coalesce(i.progress, j.progress) IS DISTINCT FROM j.progress
    THEN {job_now} ELSE j.progressed_at END,
stage = coalesce(i.stage, j.stage), progress = coalesce(i.progress, j.progress),
assist_requested = coalesce(i.assist_requested, j.assist_requested);

-- What a success changes, and the columns that its event needs.

-- part: success_changes
status = 'succeeded', phase = NULL, rev = j.rev + 1, last_pos = (SELECT pos FROM place), undo_owed = 0,
live_key = CASE WHEN j.dedupe_forever OR j.key_until IS NOT NULL THEN j.live_key END, updated_at = {job_now}, finished_at = {job_now},
last_owner = j.owner, owner = NULL, last_lease_expires_at = j.lease_expires_at, lease_expires_at = NULL;

-- part: success_columns
j.id, j.rev, j.updated_at, j.last_owner AS holder, j.incarnation, j.attempt, j.claim_pos, j.group_id, j.queue, j.subqueue;

-- The columns of a batch of changed jobs, and their values. A list is stored only if its values differ.

-- part: batch_columns
received_at, claim_pos, size, rev, attempt, actor, jobs, revs, attempts, times;

-- part: batch_values
min(updated_at), claim_pos, count(*), min(rev), min(attempt), 'worker:' || min(holder) || '#' || min(incarnation), array_agg(id),
CASE WHEN min(rev) < max(rev) THEN array_agg(rev) END,
CASE WHEN min(attempt) < max(attempt) THEN array_agg(attempt) END,
CASE WHEN min(updated_at) < max(updated_at) THEN array_agg(updated_at) END;

-- What the successes of one claim have in common. `groups` and `freed` have those that matter to a group or to a limit.

-- part: ended_values
claim_pos, count(*) AS size, min(updated_at) AS received_at, min(rev) AS rev, array_agg(id) AS jobs,
CASE WHEN min(rev) < max(rev) THEN array_agg(rev) END AS revs,
CASE WHEN min(updated_at) < max(updated_at) THEN array_agg(updated_at) END AS times,
array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) AS groups,
array_agg(subqueue) FILTER (WHERE subqueue > 0) AS freed, max(queue) FILTER (WHERE subqueue > 0) AS freed_queue;

-- part: ended_by_request
ended AS MATERIALIZED (
    SELECT request_id, 'worker:' || min(holder) || '#' || min(incarnation) AS actor, min(attempt) AS attempt,
        CASE WHEN min(attempt) < max(attempt) THEN array_agg(attempt) END AS attempts, {ended_values}
    FROM changed GROUP BY claim_pos, request_id
);

-- Log the successes, note them for limits and groups, and close claims that have ended with this statement as a whole. The sweeper
-- closes claims that end in parts.

-- part: ends_recorded
logged AS (
    INSERT INTO holdfast.event_batches (type, from_status, to_status, request_id, pos, {batch_columns})
    SELECT 'succeeded', 'running', 'succeeded', request_id,
        (SELECT pos FROM place) + sum(size) OVER (ORDER BY claim_pos, request_id) - size,
        received_at, claim_pos, size, rev, attempt, actor, jobs, revs, attempts, times
    FROM ended
), noted AS (
    INSERT INTO holdfast.subqueue_notes (freed) SELECT freed FROM ended WHERE freed IS NOT NULL
), ended_groups AS (
    INSERT INTO holdfast.group_changes (group_id, succeeded)
    SELECT g.id, count(*) FROM ended CROSS JOIN LATERAL unnest(groups) AS g (id) WHERE groups IS NOT NULL GROUP BY g.id
    RETURNING group_id
), closed AS (
    DELETE FROM holdfast.open_claims WHERE pos IN (
        SELECT c.pos FROM holdfast.open_claims c
        JOIN (SELECT claim_pos, sum(size) AS size FROM ended GROUP BY claim_pos) AS e ON e.claim_pos = c.pos AND e.size = c.size
        FOR UPDATE OF c SKIP LOCKED)
);

-- The jobs that were completed, NULL for all of them. The groups of these jobs. A queue with some that drew on limits: its workers
-- are woken.

-- part: settled
SELECT CASE WHEN coalesce(sum(size), 0) < %(size)s THEN coalesce((SELECT array_agg(id) FROM changed), '{}') END,
    (SELECT array_agg(group_id) FROM ended_groups), max(freed_queue)
FROM ended;

-- name: enqueue
WITH {clock}, {place}, input AS MATERIALIZED (
    SELECT coalesce(i.drawn_id, nextval('holdfast.job_id')) AS id, i.*
    FROM unnest(
        %(queues)s::text[], %(kinds)s::text[], %(priorities)s::integer[], %(available)s::timestamptz[],
        %(delays)s::bigint[], %(profiles)s::integer[], %(keys)s::text[], %(forever)s::boolean[],
        %(correlations)s::text[], %(traces)s::text[], %(replays)s::bigint[], %(actors)s::text[],
        %(requests)s::text[], %(payloads)s::bytea[], %(drawn)s::bigint[],
        %(reasons)s::text[], %(groups)s::bigint[], %(subqueues)s::bigint[]
    ) WITH ORDINALITY AS i (
        queue, kind, priority, available_at, delay_us, profile_id, dedupe_key, dedupe_forever, correlation_id, trace_id,
        replay_of, actor, request_id, payload, drawn_id, reason, group_id, subqueue, n)
), batches AS MATERIALIZED (
    SELECT (SELECT pos FROM place) + sum(count(*)) OVER (ORDER BY actor, request_id, reason) - count(*) AS pos, actor, request_id,
        reason, count(*) AS size, array_agg(id ORDER BY n) AS jobs
    FROM input GROUP BY actor, request_id, reason
), logged AS (
    INSERT INTO holdfast.event_batches (
        pos, received_at, size, rev, attempt, type, to_status, actor, reason, request_id, nonce, jobs)
    SELECT pos, (SELECT at FROM clock), size, 1, 0, 'enqueued', 'queued', actor, reason, request_id, %(nonce)s, jobs FROM batches
), made AS (
    INSERT INTO holdfast.jobs ({enqueued_columns})
    SELECT i.id, i.queue, i.kind, true, 'queued', 1, 0, i.priority,
        coalesce(i.available_at, (SELECT at FROM clock) + i.delay_us * interval '1 microsecond'),
        (SELECT at FROM clock), (SELECT at FROM clock), i.profile_id, i.dedupe_key, i.dedupe_key, i.dedupe_forever,
        i.correlation_id, i.trace_id, i.replay_of, i.group_id, i.subqueue,
        b.pos, (SELECT pos FROM place), i.payload
    FROM input i JOIN batches b ON b.actor = i.actor AND b.request_id IS NOT DISTINCT FROM i.request_id
        AND b.reason IS NOT DISTINCT FROM i.reason
), noted AS (
    INSERT INTO holdfast.subqueue_notes (queued)
    SELECT array_agg(DISTINCT subqueue) FROM input WHERE subqueue IS NOT NULL HAVING count(*) > 0
)
SELECT i.id, CASE i.n WHEN 1 THEN (SELECT at FROM clock) END,
    CASE WHEN i.n = 1 AND %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, i.queue) END
FROM input i ORDER BY i.n;

-- name: enqueue_plain
WITH {clock}, {place}, input AS MATERIALIZED (
    SELECT nextval('holdfast.job_id') AS id, payload, n
    FROM unnest(%(payloads)s::bytea[]) WITH ORDINALITY AS i (payload, n)
), made AS (
    INSERT INTO holdfast.jobs (
        id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, enqueued_pos,
        last_pos, payload)
    SELECT id, %(queue)s, %(kind)s, true, 'queued', 1, 0, 0, (SELECT at FROM clock), (SELECT at FROM clock),
        (SELECT at FROM clock), %(profile)s, (SELECT pos FROM place), (SELECT pos FROM place), payload
    FROM input
), logged AS (
    INSERT INTO holdfast.event_batches (pos, received_at, size, rev, attempt, type, to_status, actor, request_id, nonce, jobs)
    SELECT (SELECT pos FROM place), (SELECT at FROM clock), count(*), 1, 0, 'enqueued', 'queued', %(actor)s, %(request)s,
        %(nonce)s, array_agg(id)
    FROM input
)
SELECT id, CASE n WHEN 1 THEN (SELECT at FROM clock) END,
    CASE WHEN n = 1 AND %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, %(queue)s) END
FROM input;

-- name: enqueue_keyed
WITH {clock}, {place}, made AS (
    INSERT INTO holdfast.jobs ({enqueued_columns}, key_until)
    SELECT coalesce(%(drawn)s::bigint, nextval('holdfast.job_id')), %(queue)s, %(kind)s, true, 'queued', 1, 0, %(priority)s,
        coalesce(%(available_at)s::timestamptz, clock.at + %(delay_us)s * interval '1 microsecond'), clock.at, clock.at,
        %(profile)s, %(key)s, %(key)s, %(forever)s, %(correlation)s, %(trace)s, %(replay)s, %(group)s, %(subqueue)s::bigint,
        place.pos, place.pos, %(payload)s, clock.at + %(window_us)s * interval '1 microsecond'
    FROM clock, place
    ON CONFLICT (queue, live_key) WHERE live_key IS NOT NULL DO NOTHING
    RETURNING id, created_at, enqueued_pos, subqueue
), noted AS (
    INSERT INTO holdfast.subqueue_notes (queued) SELECT ARRAY[subqueue] FROM made WHERE subqueue IS NOT NULL
), logged AS (
    INSERT INTO holdfast.event_batches (pos, received_at, size, rev, attempt, type, to_status, actor, reason, request_id, jobs)
    SELECT enqueued_pos, created_at, 1, 1, 0, 'enqueued', 'queued', %(actor)s, %(reason)s, %(request)s, ARRAY[id] FROM made
)
SELECT id, created_at, CASE WHEN %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, %(queue)s) END FROM made;

-- A claim skips queues with subqueues, and returns their names. Without jobs it returns one row.

-- name: claim
WITH {clock}, begun AS (
    SELECT clock_timestamp() AS at
), picked AS (
    SELECT c.id, c.profile_id, clock_timestamp() - q.began AS took
    FROM (
        -- A subselect keeps the order of the list. A join could change it.
        SELECT u.*, (SELECT at FROM begun) AS began
        FROM unnest(%(queues)s::text[], %(ranks)s::integer[], %(times)s::timestamptz[], %(marks)s::bigint[])
            WITH ORDINALITY AS u (name, rank, at, job, n)
        WHERE (SELECT p.paused_at IS NULL AND NOT p.has_flow FROM holdfast.queues p WHERE p.name = u.name) IS NOT FALSE
        ORDER BY u.n
    ) q
    CROSS JOIN LATERAL (
        SELECT j.id, j.profile_id FROM holdfast.jobs j
        WHERE j.queued AND j.subqueue IS NULL AND j.available_at <= (SELECT at FROM clock)
          AND (j.queue, -j.priority, j.available_at, j.id) > (q.name, q.rank, q.at, q.job) AND j.queue <= q.name
          AND CASE WHEN %(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s) THEN true END
        ORDER BY j.queue, -j.priority, j.available_at, j.id
        LIMIT (SELECT %(limit)s::integer)
        FOR NO KEY UPDATE SKIP LOCKED
    ) c
    ORDER BY q.n
    LIMIT %(limit)s
), {claim_picked}
SELECT c.*, flow
FROM (SELECT array_agg(name) AS flow FROM holdfast.queues WHERE has_flow AND name = ANY (%(queues)s)) f
LEFT JOIN (SELECT *, CASE id WHEN (SELECT ids[1] FROM place) THEN (SELECT took FROM place) END AS took FROM changed) c ON true;

-- Jobs that were chosen, and locked, before.

-- name: claim_chosen
WITH {clock}, picked AS MATERIALIZED (
    SELECT id, profile_id, NULL::interval AS took FROM holdfast.jobs WHERE id {in_ids}
), {claim_picked}
SELECT c.*, (SELECT pos FROM place) AS pos FROM changed c;

-- The claim of the jobs in `picked`.

-- part: claim_picked
place AS (
    -- Drawn after the rows are locked.
    SELECT nextval('holdfast.event_pos') AS pos, array_agg(id) AS ids, max(took) AS took FROM picked HAVING count(*) > 0
), terms AS (
    SELECT f.id, policy_id, lease, check_after, token_tail
    FROM holdfast.profiles f JOIN holdfast.policies p ON p.id = policy_id
    WHERE f.id = ANY (ARRAY (SELECT DISTINCT profile_id FROM picked))
), changed AS (
    UPDATE holdfast.jobs j
    SET queued = false, status = %(status)s, phase = %(phase)s, rev = rev + %(steps)s, attempt = attempt + 1,
        claim_pos = (SELECT pos FROM place), last_pos = (SELECT pos FROM place),
        owner = %(owner)s, incarnation = %(incarnation)s, token = %(token)s || t.token_tail, policy_id = t.policy_id,
        updated_at = {job_now}, claimed_at = {job_now}, last_beat_at = {job_now}, progressed_at = {job_now},
        started_at = CASE WHEN %(steps)s = 2 THEN {job_now} END,
        lease_expires_at = {job_now} + t.lease,
        stage = NULL, progress = NULL, assist_requested = false, counter = NULL, stall_reason = NULL, stalled_at = NULL,
        revived_at = NULL, reason_code = NULL, failure_stage = NULL
    FROM terms t
    WHERE j.id = ANY ((SELECT ids FROM place)::bigint[]) AND t.id = j.profile_id
    RETURNING j.id, queue, kind, rev, attempt, priority, available_at, created_at, claimed_at, lease_expires_at, releases, last_owner,
        last_lease_expires_at, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, j.policy_id,
        checkpoint_rev, undo_owed, payload
), logged AS (
    INSERT INTO holdfast.event_batches (
        pos, received_at, size, rev, attempt, policy_id, starts, type, from_status, to_status, actor, request_id, jobs, revs,
        attempts, policy_ids, times)
    SELECT (SELECT pos FROM place), min(claimed_at), count(*) * %(steps)s, min(rev) - %(steps)s + 1, min(attempt), min(policy_id),
        %(steps)s = 2, 'claimed', 'queued', 'claimed', %(actor)s, %(request)s, array_agg(id),
        CASE WHEN min(rev) < max(rev) THEN (SELECT array_agg(rev - %(steps)s + 1) FROM changed) END,
        CASE WHEN min(attempt) < max(attempt) THEN array_agg(attempt) END,
        CASE WHEN min(policy_id) < max(policy_id) THEN array_agg(policy_id) END,
        CASE WHEN min(claimed_at) < max(claimed_at) THEN (SELECT array_agg(claimed_at) FROM changed) END
    FROM changed HAVING count(*) > 0
    RETURNING pos, received_at, size
), opened AS (
    INSERT INTO holdfast.open_claims (pos, check_at, size)
    SELECT pos, received_at + least((SELECT min(check_after) FROM terms), '5 s'), size / %(steps)s FROM logged
);

-- name: start
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[]
    ) AS i (id, attempt, token, expected_rev, request_id)
), changed AS (
    UPDATE holdfast.jobs j
    SET status = 'running', phase = 'executing', rev = j.rev + 1, last_pos = (SELECT pos FROM place),
        updated_at = {job_now}, started_at = {job_now}, last_beat_at = {job_now},
        lease_expires_at = {new_lease}
    FROM input i
    WHERE {of_input}
      AND CASE WHEN {has_fence} AND j.status = 'claimed' AND {is_held} AND {is_expected} THEN true END
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.owner AS holder, j.incarnation, j.attempt, j.claim_pos,
        i.request_id
), logged AS (
    INSERT INTO holdfast.event_batches (type, from_status, to_status, request_id, pos, {batch_columns})
    SELECT 'started', 'claimed', 'running', request_id,
        (SELECT pos FROM place) + sum(count(*)) OVER (ORDER BY claim_pos, request_id) - count(*), {batch_values}
    FROM changed GROUP BY claim_pos, request_id
)
SELECT id, rev, updated_at, lease_expires_at FROM changed;

-- name: heartbeat
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[],
        %(stages)s::text[], %(progress)s::bigint[], %(assists)s::boolean[], %(payloads)s::bytea[]
    ) AS i (id, attempt, token, expected_rev, request_id, stage, progress, assist_requested, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET {beat_changes}, {progress_changes}
    FROM input i
    WHERE {of_input}
      AND CASE WHEN {has_fence} AND j.status IN ('claimed', 'running') AND {is_held} AND {is_expected} THEN true END
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt, j.claim_pos,
        i.request_id, i.payload
), logged AS (
    INSERT INTO holdfast.event_rows (
        pos, job_id, rev, type, received_at, claim_pos, actor, attempt, from_status, to_status, request_id,
        payload)
    SELECT (SELECT pos FROM place) + row_number() OVER () - 1, id, rev, 'heartbeat', updated_at, claim_pos,
        'worker:' || owner || '#' || incarnation, attempt, status, status, request_id, payload
    FROM changed
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- name: beat
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[]) AS i (id, attempt, token)
), changed AS (
    UPDATE holdfast.jobs j
    SET {beat_changes}
    FROM input i
    WHERE {of_input}
      AND CASE WHEN {has_fence} AND j.status IN ('claimed', 'running') AND {is_held} THEN true END
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner AS holder, j.incarnation, j.attempt,
        j.claim_pos
), logged AS (
    INSERT INTO holdfast.event_batches (type, from_status, to_status, request_id, pos, {batch_columns})
    SELECT 'heartbeat', status, status, NULL,
        (SELECT pos FROM place) + sum(count(*)) OVER (ORDER BY claim_pos, status) - count(*), {batch_values}
    FROM changed GROUP BY claim_pos, status
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- Signed heartbeats. If the token is NULL, the signed statement alone proves the holder. `at` may differ from this clock by the
-- skew limit.

-- name: beat_signed
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[],
        %(stages)s::text[], %(progress)s::bigint[], %(assists)s::boolean[], %(payloads)s::bytea[], %(owners)s::text[],
        %(incarnations)s::text[], %(counters)s::bigint[], %(signed)s::timestamptz[], %(key_ids)s::text[],
        %(signatures)s::bytea[], %(statements)s::bytea[]
    ) AS i (
        id, attempt, token, expected_rev, request_id, stage, progress, assist_requested, payload, owner, incarnation, counter,
        at, key_id, signature, statement)
), changed AS (
    UPDATE holdfast.jobs j
    SET {beat_changes}, {progress_changes}, counter = i.counter
    FROM input i
    WHERE {of_input}
      AND CASE WHEN j.attempt = i.attempt AND j.token = coalesce(i.token, j.token) AND j.status IN ('claimed', 'running')
          AND {is_held}
          AND j.owner = i.owner AND j.incarnation = i.incarnation AND i.counter > coalesce(j.counter, -1)
          AND i.at BETWEEN (SELECT at FROM clock) - %(skew_us)s * interval '1 microsecond'
              AND (SELECT at FROM clock) + %(skew_us)s * interval '1 microsecond'
          AND {is_expected}
          THEN true END
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt, j.claim_pos,
        i.request_id, i.payload, i.at, i.key_id, i.signature, i.statement
), logged AS (
    INSERT INTO holdfast.event_rows (
        pos, job_id, rev, type, received_at, claim_pos, actor, attempt, from_status, to_status, request_id,
        payload, at, key_id, signature, statement)
    SELECT (SELECT pos FROM place) + row_number() OVER () - 1, id, rev, 'heartbeat', updated_at, claim_pos,
        'worker:' || owner || '#' || incarnation, attempt, status, status, request_id, payload, at, key_id, signature, statement
    FROM changed
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- name: complete
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[],
        %(payloads)s::bytea[]
    ) AS i (id, attempt, token, expected_rev, request_id, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET result = i.payload, {success_changes}
    FROM input i
    WHERE {of_input}
      AND CASE WHEN {has_fence} AND j.status = 'running' AND j.dependents = 0 AND {is_held} AND {is_expected} THEN true END
    RETURNING {success_columns}, i.request_id
), {ended_by_request}, {ends_recorded}
SELECT id, rev, updated_at, group_id, CASE WHEN subqueue > 0 THEN queue END FROM changed;

-- A worker's completions in bulk. They carry no expected revision.

-- name: settle
WITH {clock}, {place}, input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(requests)s::text[], %(payloads)s::bytea[]
    ) AS i (id, attempt, token, request_id, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET result = i.payload, {success_changes}
    FROM input i
    WHERE {of_input}
      AND CASE WHEN {has_fence} AND j.status = 'running' AND j.dependents = 0 AND {is_held} THEN true END
    RETURNING {success_columns}, i.request_id
), {ended_by_request}, {ends_recorded}
{settled};

-- The same for jobs of one claim, with one attempt number and one result.

-- name: settle_alike
WITH {clock}, {place}, changed AS (
    UPDATE holdfast.jobs j
    SET result = %(payload)s, {success_changes}
    WHERE j.id = ANY (%(ids)s::bigint[])
      AND CASE WHEN j.attempt = %(attempt)s AND j.token = %(token)s AND j.status = 'running' AND j.dependents = 0
          AND {is_held}
          THEN true END
    RETURNING {success_columns}
), ended AS MATERIALIZED (
    SELECT %(request)s::text AS request_id, (SELECT 'worker:' || holder || '#' || incarnation FROM changed LIMIT 1) AS actor,
        %(attempt)s::integer AS attempt, NULL::integer[] AS attempts, {ended_values}
    FROM changed GROUP BY claim_pos
), {ends_recorded}
{settled};
