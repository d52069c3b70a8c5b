-- What agents are at, what they may take up next, and what they are told of it.

-- name: lock_agent
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.agents ' || %(session)s::text || ' ' || %(name)s::text, 0));

-- name: find_agent
SELECT focus, last, cursor FROM holdfast.agents WHERE name = %(name)s AND session = %(session)s;

-- name: save_agent
INSERT INTO holdfast.agents AS a (name, session, focus, last, cursor, updated_at)
VALUES (%(name)s, %(session)s, %(focus)s, %(last)s, %(cursor)s, coalesce(%(now_at)s::timestamptz, clock_timestamp()))
ON CONFLICT (name, session) DO UPDATE
SET focus = excluded.focus, last = excluded.last, cursor = greatest(a.cursor, excluded.cursor), updated_at = excluded.updated_at;

-- name: last_agent
SELECT max(updated_at) FROM holdfast.agents;

-- name: own_tasks
SELECT id FROM holdfast.jobs
WHERE status IN ('claimed', 'running', 'stalled') AND status IN ('claimed', 'running')
  AND owner = %(name)s AND incarnation = %(session)s
ORDER BY status DESC, id LIMIT %(limit)s;

-- name: prune_agents
DELETE FROM holdfast.agents WHERE (name, session) IN (
    SELECT a.name, a.session FROM holdfast.agents a
    WHERE a.updated_at < %(before_at)s AND NOT EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.status IN ('claimed', 'running', 'stalled') AND j.owner = a.name AND j.incarnation = a.session)
    LIMIT %(limit)s)
RETURNING 1;

-- The first job of every priority of every queue, through the index alone: each step jumps to the next queue or priority, past
-- whatever waits at the one before.

-- name: first_tasks
WITH RECURSIVE named (queue) AS (
    (SELECT queue FROM holdfast.jobs WHERE status = 'queued' AND %(queues)s::text[] IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT n.queue FROM holdfast.jobs n WHERE n.status = 'queued' AND n.queue > named.queue ORDER BY n.queue LIMIT 1)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM named WHERE queue IS NOT NULL
    UNION
    SELECT u.name COLLATE "C" FROM unnest(%(queues)s::text[]) AS u (name)
),
places (queue, rank) AS (
    SELECT w.queue, (SELECT -n.priority FROM holdfast.jobs n WHERE n.status = 'queued' AND n.queue = w.queue
                     ORDER BY -n.priority LIMIT 1)
    FROM wanted w WHERE (SELECT p.paused_at FROM holdfast.queues p WHERE p.name = w.queue) IS NULL
    UNION ALL
    SELECT p.queue, (SELECT -n.priority FROM holdfast.jobs n WHERE n.status = 'queued' AND n.queue = p.queue
                       AND -n.priority > p.rank
                     ORDER BY -n.priority LIMIT 1)
    FROM places p WHERE p.rank IS NOT NULL
)
SELECT j.queue, j.priority, j.available_at, j.id
FROM places p
CROSS JOIN LATERAL (
    SELECT n.queue, n.priority, n.available_at, n.id FROM holdfast.jobs n
    WHERE n.status = 'queued' AND n.queue = p.queue AND -n.priority = p.rank AND n.kind <> %(undo_kind)s
      AND (%(kinds)s::text[] IS NULL OR n.kind = ANY (%(kinds)s::text[]))
    ORDER BY n.available_at, n.id LIMIT 1) j
WHERE p.rank IS NOT NULL;

-- What somebody else is just taking is passed over.

-- name: take_task
SELECT id FROM holdfast.jobs
WHERE status = 'queued' AND queue = %(queue)s AND -priority = -%(priority)s::integer
  AND available_at <= coalesce(%(now_at)s::timestamptz, (SELECT clock_timestamp())) AND kind <> %(undo_kind)s
  AND (%(kinds)s::text[] IS NULL OR kind = ANY (%(kinds)s::text[]))
ORDER BY available_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: has_event
SELECT 1 FROM holdfast.events WHERE pos = %(cursor)s AND job_id = %(job_id)s;

-- name: newest_events
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id,
    e.signature, e.statement
FROM holdfast.events e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.job_id = %(job_id)s AND e.pos > %(after)s ORDER BY e.rev DESC LIMIT %(limit)s;

-- name: count_events
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.events WHERE job_id = %(job_id)s AND rev < %(rev_below)s AND pos > %(after)s
    ORDER BY rev DESC LIMIT %(limit)s) AS older;

-- name: blockers
SELECT j.id, j.kind, j.status, j.waits_for
FROM holdfast.dependencies d JOIN holdfast.jobs j ON j.id = d.on_id
WHERE d.job_id = %(job_id)s AND j.status <> 'succeeded' ORDER BY j.id LIMIT %(limit)s;

-- Whoever waits is reached by key: the sum keeps the index of all that wait out of it.

-- name: unlocks
SELECT j.id, j.kind, j.status, j.waits_for
FROM holdfast.dependencies d JOIN holdfast.jobs j ON j.id = d.job_id
WHERE d.on_id = %(on_id)s AND j.waits_for + 0 > 0 ORDER BY j.id LIMIT %(limit)s;

-- Beats that may carry a checkpoint: the bytes may also stand within an undo step.

-- name: checkpoint_beats
SELECT attempt, received_at, actor, payload FROM holdfast.events
WHERE job_id = %(job_id)s AND rev > %(rev_above)s AND type = 'heartbeat' AND attempt < %(attempt)s
  AND position('"checkpoint":'::bytea IN payload) > 0
ORDER BY rev DESC LIMIT %(limit)s;
