-- Copies of the hot statements that the raw loops run. Frozen on purpose: they are not changed with the
-- statements they were taken from, so that figures of different days have the same measure.

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
SELECT id, CASE n WHEN 1 THEN (SELECT at FROM clock) END FROM input;

-- name: claim
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), started AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), picked AS MATERIALIZED (
    SELECT c.id, clock_timestamp() - q.begun_at AS took
    FROM (
        SELECT u.name, u.n, (SELECT at FROM started) AS begun_at FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS u (name, n)
        WHERE (SELECT p.paused_at FROM holdfast.queues p WHERE p.name = u.name) IS NULL
        ORDER BY u.n
    ) q
    CROSS JOIN LATERAL (
        SELECT j.id FROM holdfast.jobs j
        WHERE j.status = 'queued' AND j.queue = q.name AND j.available_at <= (SELECT at FROM clock)
          AND (-j.priority, j.available_at, j.id) > (%(mark_rank)s::integer, %(mark_at)s::timestamptz, %(mark_id)s::bigint)
          AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]))
        ORDER BY -j.priority, j.available_at, j.id
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) c
    ORDER BY q.n
    LIMIT %(limit)s
), changed AS (
    UPDATE holdfast.jobs j
    SET status = %(status)s, phase = %(phase)s, rev = j.rev + %(steps)s, attempt = j.attempt + 1,
        owner = %(owner)s, incarnation = %(incarnation)s, token = %(token)s, policy_id = f.policy_id,
        updated_at = greatest(clock.at, j.updated_at), claimed_at = greatest(clock.at, j.updated_at),
        last_beat_at = greatest(clock.at, j.updated_at), progressed_at = greatest(clock.at, j.updated_at),
        started_at = CASE WHEN %(steps)s = 2 THEN greatest(clock.at, j.updated_at) END,
        lease_expires_at = greatest(clock.at, j.updated_at) + p.lease,
        stage = NULL, progress = NULL, assist_requested = false, stall_reason = NULL, stalled_at = NULL, revived_at = NULL
    FROM clock, holdfast.profiles f, holdfast.policies p
    WHERE j.id = ANY (ARRAY (SELECT id FROM picked)) AND (j.status || '') = 'queued' AND f.id = j.profile_id AND p.id = f.policy_id
    RETURNING j.id, j.queue, j.kind, j.rev, j.attempt, j.priority, j.available_at, j.created_at, j.claimed_at,
        j.lease_expires_at, j.releases, j.last_owner, j.last_lease_expires_at, j.last_error, j.cancel_reason, j.dedupe_key,
        j.dedupe_forever, j.correlation_id, j.trace_id, j.policy_id
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
    (SELECT max(took) FROM picked) FROM changed c;

-- name: beat
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_at)s::timestamptz, clock_timestamp()) AS at
), input AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(tokens)s::text[]) AS i (id, attempt, token)
), changed AS (
    UPDATE holdfast.jobs j
    SET rev = j.rev + 1, updated_at = greatest(clock.at, j.updated_at), last_beat_at = greatest(clock.at, j.updated_at),
        lease_expires_at = greatest(clock.at, j.updated_at)
            + (SELECT p.lease FROM holdfast.policies p WHERE p.id = j.policy_id)
    FROM input i, clock
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') IN ('claimed', 'running')
      AND greatest(clock.at, j.updated_at) <= j.lease_expires_at
    RETURNING j.id, j.rev, j.updated_at, j.lease_expires_at, j.status, j.phase, j.owner, j.incarnation, j.attempt
), logged AS (
    INSERT INTO holdfast.events (job_id, rev, type, received_at, actor, attempt, from_status, to_status)
    SELECT id, rev, 'heartbeat', updated_at, 'worker:' || owner || '#' || incarnation, attempt, status, status FROM changed
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
    SET status = 'succeeded', phase = NULL, rev = j.rev + 1, result_rev = j.rev + 1,
        updated_at = greatest(clock.at, j.updated_at), finished_at = greatest(clock.at, j.updated_at),
        last_owner = j.owner, owner = NULL, last_lease_expires_at = j.lease_expires_at, lease_expires_at = NULL
    FROM input i, clock
    WHERE j.id = i.id AND j.attempt = i.attempt AND j.token = i.token AND (j.status || '') = 'running'
      AND greatest(clock.at, j.updated_at) <= j.lease_expires_at
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
