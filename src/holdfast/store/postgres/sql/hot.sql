-- The hot verbs: set-based, with guards in their WHERE. Commands that do not match a guard are decided one by one.
-- Jobs are looked up by primary key only. The guard on status is written so that no partial index matches it: with much history,
-- the generic plan would join through that index. Arrays arrive sorted by job, so that rows are locked in one order.
-- The clock is read once, in a CTE, and always used through a subselect: a join would scan it for each row.
-- An injected clock comes as a parameter.
-- An enqueue with a channel sends a notification when it commits.

-- name: enqueue
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS MATERIALIZED (
    SELECT coalesce(i.drawn_id, nextval('holdfast.job_id')) AS id, i.*
    FROM unnest(
        %(queues)s::text[], %(kinds)s::text[], %(priorities)s::integer[], %(available)s::timestamptz[],
        %(delays)s::bigint[], %(profiles)s::integer[], %(keys)s::text[], %(forever)s::boolean[],
        %(correlations)s::text[], %(traces)s::text[], %(replays)s::bigint[], %(actors)s::text[],
        %(requests)s::text[], %(payloads)s::bytea[], %(drawn)s::bigint[],
        %(reasons)s::text[]
    ) WITH ORDINALITY AS i (
        queue, kind, priority, available_at, delay_us, profile_id, dedupe_key, dedupe_forever, correlation_id, trace_id,
        replay_of, actor, request_id, payload, drawn_id, reason, n)
), made AS (
    INSERT INTO holdfast.jobs (
        id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key,
        dedupe_forever, correlation_id, trace_id, replay_of)
    SELECT id, queue, kind, 'queued', 1, 0, priority,
        coalesce(available_at, (SELECT at FROM clock) + delay_us * interval '1 microsecond'),
        (SELECT at FROM clock), (SELECT at FROM clock), profile_id, dedupe_key, dedupe_forever, correlation_id, trace_id,
        replay_of
    FROM input
    RETURNING id
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, to_status, reason, request_id, payload, correlation_id)
    SELECT m.id, 1, 'enqueued', (SELECT at FROM clock), i.actor, 0, 'queued', i.reason, i.request_id, i.payload, i.correlation_id
    FROM made m JOIN input i ON i.id = m.id
)
SELECT i.id, CASE i.n WHEN 1 THEN (SELECT at FROM clock) END,
    CASE WHEN i.n = 1 AND %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, i.queue) END
FROM input i ORDER BY i.n;

-- name: enqueue_plain
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS MATERIALIZED (
    SELECT nextval('holdfast.job_id') AS id, payload, n
    FROM unnest(%(payloads)s::bytea[]) WITH ORDINALITY AS i (payload, n)
), made AS (
    INSERT INTO holdfast.jobs (
        id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id)
    SELECT id, %(queue)s, %(kind)s, 'queued', 1, 0, 0, (SELECT at FROM clock), (SELECT at FROM clock),
        (SELECT at FROM clock), %(profile)s
    FROM input
), logged AS (
    INSERT INTO holdfast.events (job_id, rev, type, received_at, actor, attempt, to_status, request_id, payload)
    SELECT id, 1, 'enqueued', (SELECT at FROM clock), %(actor)s, 0, 'queued', %(request)s, payload
    FROM input
)
SELECT id, CASE n WHEN 1 THEN (SELECT at FROM clock) END,
    CASE WHEN n = 1 AND %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, %(queue)s) END
FROM input;

-- name: enqueue_keyed
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), made AS (
    INSERT INTO holdfast.jobs (
        id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_key,
        dedupe_forever, correlation_id, trace_id, replay_of)
    SELECT coalesce(%(drawn)s::bigint, nextval('holdfast.job_id')), %(queue)s, %(kind)s, 'queued', 1, 0, %(priority)s,
        coalesce(%(available_at)s::timestamptz, clock.at + %(delay_us)s * interval '1 microsecond'), clock.at, clock.at,
        %(profile)s, %(key)s, %(forever)s, %(correlation)s, %(trace)s, %(replay)s
    FROM clock
    ON CONFLICT (queue, dedupe_key)
        WHERE dedupe_key IS NOT NULL AND (dedupe_forever OR status IN ('queued', 'claimed', 'running', 'stalled'))
        DO NOTHING
    RETURNING id, created_at
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, to_status, reason, request_id, payload, correlation_id)
    SELECT id, 1, 'enqueued', created_at, %(actor)s, 0, 'queued', %(reason)s, %(request)s, %(payload)s, %(correlation)s FROM made
)
SELECT id, created_at, CASE WHEN %(channel)s::text IS NOT NULL THEN pg_notify(%(channel)s::text, %(queue)s) END FROM made;

-- name: find_dedupe
SELECT id, created_at FROM holdfast.jobs
WHERE queue = %(queue)s AND dedupe_key = %(key)s AND dedupe_key IS NOT NULL
  AND (dedupe_forever OR status IN ('queued', 'claimed', 'running', 'stalled'));

-- name: claim
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), started AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), picked AS MATERIALIZED (
    SELECT c.id, clock_timestamp() - q.begun_at AS took
    FROM (
        -- A subselect keeps the order of the list. A join could change it.
        SELECT u.*, (SELECT at FROM started) AS begun_at
        FROM unnest(%(queues)s::text[], %(mark_ranks)s::integer[], %(mark_times)s::timestamptz[], %(mark_ids)s::bigint[])
            WITH ORDINALITY AS u (name, mark_rank, mark_at, mark_id, n)
        WHERE (SELECT p.paused_at FROM holdfast.queues p WHERE p.name = u.name) IS NULL
        ORDER BY u.n
    ) q
    CROSS JOIN LATERAL (
        SELECT j.id FROM holdfast.jobs j
        WHERE j.status = 'queued' AND j.queue = q.name AND j.available_at <= (SELECT at FROM clock)
          AND (-j.priority, j.available_at, j.id) > (q.mark_rank, q.mark_at, q.mark_id)
          AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]))
        ORDER BY -j.priority, j.available_at, j.id
        LIMIT %(limit)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) c
    ORDER BY q.n
    LIMIT %(limit)s
), changed AS (
    UPDATE holdfast.jobs j
    SET status = %(status)s, phase = %(phase)s, rev = j.rev + %(steps)s, attempt = j.attempt + 1,
        owner = %(owner)s, incarnation = %(incarnation)s, token = %(token)s || p.token_tail, policy_id = f.policy_id,
        updated_at = greatest((SELECT at FROM clock), j.updated_at), claimed_at = greatest((SELECT at FROM clock), j.updated_at),
        last_beat_at = greatest((SELECT at FROM clock), j.updated_at),
        progressed_at = greatest((SELECT at FROM clock), j.updated_at),
        started_at = CASE WHEN %(steps)s = 2 THEN greatest((SELECT at FROM clock), j.updated_at) END,
        lease_expires_at = greatest((SELECT at FROM clock), j.updated_at) + p.lease,
        stage = NULL, progress = NULL, assist_requested = false, counter = NULL, stall_reason = NULL, stalled_at = NULL, revived_at = NULL,
        reason_code = NULL, failure_stage = NULL
    FROM holdfast.profiles f, holdfast.policies p
    WHERE j.id = ANY (ARRAY (SELECT id FROM picked)) AND (j.status || '') = 'queued' AND f.id = j.profile_id AND p.id = f.policy_id
    RETURNING j.id, j.queue, j.kind, j.rev, j.attempt, j.priority, j.available_at, j.created_at, j.claimed_at,
        j.lease_expires_at, j.releases, j.last_owner, j.last_lease_expires_at, j.last_error, j.cancel_reason, j.dedupe_key,
        j.dedupe_forever, j.correlation_id, j.trace_id, j.policy_id, j.checkpoint_rev, j.undo_owed
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, policy_id)
    SELECT c.id, c.rev - (%(steps)s - step.n), step.type, c.claimed_at, %(actor)s, c.attempt, step.from_status,
        step.to_status, %(request)s, CASE step.n WHEN 1 THEN c.policy_id END
    FROM changed c CROSS JOIN (
        VALUES (1, 'claimed', 'queued', 'claimed'), (2, 'started', 'claimed', 'running')
    ) AS step (n, type, from_status, to_status)
    WHERE step.n <= %(steps)s
)
SELECT c.*, (SELECT e.payload FROM holdfast.events e WHERE e.job_id = c.id AND e.rev = 1),
    CASE c.id WHEN (SELECT max(id) FROM picked) THEN (SELECT max(took) FROM picked) END FROM changed c;

-- name: start
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[]
    ) AS i (id, attempt, token, expected_rev, request_id)
), changed AS (
    UPDATE holdfast.jobs j
    SET status = 'running', phase = 'executing', rev = j.rev + 1,
        updated_at = greatest((SELECT at FROM clock), j.updated_at), started_at = greatest((SELECT at FROM clock), j.updated_at),
        last_beat_at = greatest((SELECT at FROM clock), j.updated_at),
        lease_expires_at = greatest((SELECT at FROM clock), j.updated_at)
            + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id)
    FROM input i
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') = 'claimed'
      AND greatest((SELECT at FROM clock), j.updated_at) <= j.lease_expires_at
      AND (i.expected_rev IS NULL OR i.expected_rev = j.rev)
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.owner, j.incarnation, j.attempt, i.request_id
), logged AS (
    INSERT INTO holdfast.events (job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id)
    SELECT id, rev, 'started', updated_at, 'worker:' || owner || '#' || incarnation, attempt, 'claimed', 'running', request_id
    FROM changed
)
SELECT id, rev, updated_at, lease_expires_at FROM changed;

-- name: heartbeat
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[],
        %(stages)s::text[], %(progress)s::bigint[], %(assists)s::boolean[], %(payloads)s::bytea[]
    ) AS i (id, attempt, token, expected_rev, request_id, stage, progress, assist_requested, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET rev = j.rev + 1, updated_at = greatest((SELECT at FROM clock), j.updated_at),
        last_beat_at = greatest((SELECT at FROM clock), j.updated_at),
        lease_expires_at = greatest((SELECT at FROM clock), j.updated_at)
            + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id),
        progressed_at = CASE
            WHEN coalesce(i.stage, j.stage) IS DISTINCT FROM j.stage
              OR coalesce(i.progress, j.progress) IS DISTINCT FROM j.progress
            THEN greatest((SELECT at FROM clock), j.updated_at) ELSE j.progressed_at END,
        stage = coalesce(i.stage, j.stage), progress = coalesce(i.progress, j.progress),
        assist_requested = coalesce(i.assist_requested, j.assist_requested)
    FROM input i
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') IN ('claimed', 'running')
      AND greatest((SELECT at FROM clock), j.updated_at) <= j.lease_expires_at
      AND (i.expected_rev IS NULL OR i.expected_rev = j.rev)
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt,
        i.request_id, i.payload
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
    SELECT id, rev, 'heartbeat', updated_at, 'worker:' || owner || '#' || incarnation, attempt, status, status, request_id,
        payload
    FROM changed
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- name: beat
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[]) AS i (id, attempt, token)
), changed AS (
    UPDATE holdfast.jobs j
    SET rev = j.rev + 1, updated_at = greatest((SELECT at FROM clock), j.updated_at),
        last_beat_at = greatest((SELECT at FROM clock), j.updated_at),
        lease_expires_at = greatest((SELECT at FROM clock), j.updated_at)
            + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id)
    FROM input i
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') IN ('claimed', 'running')
      AND greatest((SELECT at FROM clock), j.updated_at) <= j.lease_expires_at
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt
), logged AS (
    INSERT INTO holdfast.events (job_id, rev, type, received_at, actor, attempt, from_status, to_status)
    SELECT id, rev, 'heartbeat', updated_at, 'worker:' || owner || '#' || incarnation, attempt, status, status FROM changed
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- Signed heartbeats. If the token is NULL, the signed statement alone proves the holder. `at` may differ from this clock by the
-- skew limit.

-- name: beat_signed
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
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
    SET rev = j.rev + 1, updated_at = greatest(clock.at, j.updated_at), last_beat_at = greatest(clock.at, j.updated_at),
        lease_expires_at = greatest(clock.at, j.updated_at)
            + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id),
        progressed_at = CASE
            WHEN coalesce(i.stage, j.stage) IS DISTINCT FROM j.stage
              OR coalesce(i.progress, j.progress) IS DISTINCT FROM j.progress
            THEN greatest(clock.at, j.updated_at) ELSE j.progressed_at END,
        stage = coalesce(i.stage, j.stage), progress = coalesce(i.progress, j.progress),
        assist_requested = coalesce(i.assist_requested, j.assist_requested), counter = i.counter
    FROM input i, clock
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = coalesce(i.token, j.token)
      AND j.owner = i.owner AND j.incarnation = i.incarnation AND i.counter > coalesce(j.counter, -1)
      AND (j.status || '') IN ('claimed', 'running')
      AND greatest(clock.at, j.updated_at) <= j.lease_expires_at
      AND i.at BETWEEN clock.at - %(skew_us)s * interval '1 microsecond' AND clock.at + %(skew_us)s * interval '1 microsecond'
      AND (i.expected_rev IS NULL OR i.expected_rev = j.rev)
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt,
        i.request_id, i.payload, i.at, i.key_id, i.signature, i.statement
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload, at, key_id, signature,
        statement)
    SELECT id, rev, 'heartbeat', updated_at, 'worker:' || owner || '#' || incarnation, attempt, status, status, request_id,
        payload, at, key_id, signature, statement
    FROM changed
)
SELECT id, rev, updated_at, lease_expires_at, status, phase FROM changed;

-- name: complete
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(revs)s::integer[], %(requests)s::text[],
        %(payloads)s::bytea[]
    ) AS i (id, attempt, token, expected_rev, request_id, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET status = 'succeeded', phase = NULL, rev = j.rev + 1, result_rev = j.rev + 1, undo_owed = 0,
        updated_at = greatest((SELECT at FROM clock), j.updated_at), finished_at = greatest((SELECT at FROM clock), j.updated_at),
        last_owner = j.owner, owner = NULL, last_lease_expires_at = j.lease_expires_at, lease_expires_at = NULL
    FROM input i
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') = 'running' AND j.dependents = 0
      AND greatest((SELECT at FROM clock), j.updated_at) <= j.lease_expires_at
      AND (i.expected_rev IS NULL OR i.expected_rev = j.rev)
    RETURNING j.id, j.rev, j.updated_at, j.last_owner, j.incarnation, j.attempt, i.request_id, i.payload
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
    SELECT id, rev, 'succeeded', updated_at, 'worker:' || last_owner || '#' || incarnation, attempt, 'running', 'succeeded',
        request_id, payload
    FROM changed
)
SELECT id, rev, updated_at FROM changed;

-- A worker's completions in bulk. They carry no expected revision. The result is NULL if all jobs were completed.

-- name: settle
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[], %(requests)s::text[], %(payloads)s::bytea[]
    ) AS i (id, attempt, token, request_id, payload)
), changed AS (
    UPDATE holdfast.jobs j
    SET status = 'succeeded', phase = NULL, rev = j.rev + 1, result_rev = j.rev + 1, undo_owed = 0,
        updated_at = greatest((SELECT at FROM clock), j.updated_at), finished_at = greatest((SELECT at FROM clock), j.updated_at),
        last_owner = j.owner, owner = NULL, last_lease_expires_at = j.lease_expires_at, lease_expires_at = NULL
    FROM input i
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') = 'running' AND j.dependents = 0
      AND greatest((SELECT at FROM clock), j.updated_at) <= j.lease_expires_at
    RETURNING j.id, j.rev, j.updated_at, j.last_owner, j.incarnation, j.attempt, i.request_id, i.payload
), logged AS (
    INSERT INTO holdfast.events (
        job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload)
    SELECT id, rev, 'succeeded', updated_at, 'worker:' || last_owner || '#' || incarnation, attempt, 'running', 'succeeded',
        request_id, payload
    FROM changed
)
SELECT CASE WHEN count(*) < %(size)s THEN coalesce(array_agg(id), '{}') END FROM changed;
