-- Sessions of agents, the tasks that they may claim next, and the events and checkpoints that are shown to them.

-- name: lock_agent
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.agents ' || %(session)s::text || ' ' || %(name)s::text, 0));

-- name: save_agent
INSERT INTO holdfast.agents AS a (name, session, focus, last, cursor, updated_at)
VALUES (%(name)s, %(session)s, %(focus)s, %(last)s, %(cursor)s, {now})
ON CONFLICT (name, session) DO UPDATE
SET focus = excluded.focus, last = excluded.last, cursor = greatest(a.cursor, excluded.cursor), updated_at = excluded.updated_at;

-- name: prune_agents
DELETE FROM holdfast.agents WHERE (name, session) IN (
    SELECT a.name, a.session FROM holdfast.agents a
    WHERE a.updated_at < %(before_at)s AND NOT EXISTS (
        SELECT FROM holdfast.active_jobs j
        WHERE j.owner = a.name AND j.incarnation = a.session)
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- The first job of every priority of every queue, by index lookups only: each step jumps to the next queue or priority and skips
-- the other jobs of the one before.

-- name: first_tasks
WITH RECURSIVE named (queue) AS (
    (SELECT queue FROM holdfast.jobs WHERE queued AND subqueue IS NULL AND %(queues)s::text[] IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT n.queue FROM holdfast.jobs n WHERE n.queued AND n.subqueue IS NULL AND n.queue > named.queue ORDER BY n.queue LIMIT 1)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM named WHERE queue IS NOT NULL
    UNION
    SELECT u.name COLLATE "C" FROM unnest(%(queues)s::text[]) AS u (name)
),
places (queue, rank) AS (
    SELECT w.queue, (SELECT -n.priority FROM holdfast.jobs n WHERE n.queued AND n.subqueue IS NULL AND n.queue = w.queue
                     ORDER BY -n.priority LIMIT 1)
    FROM wanted w WHERE (SELECT p.paused_at FROM holdfast.queues p WHERE p.name = w.queue) IS NULL
    UNION ALL
    SELECT p.queue, (SELECT -n.priority FROM holdfast.jobs n WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue
                       AND -n.priority > p.rank
                     ORDER BY -n.priority LIMIT 1)
    FROM places p WHERE p.rank IS NOT NULL
)
SELECT j.queue, j.priority, j.available_at, j.id
FROM places p
CROSS JOIN LATERAL (
    SELECT n.queue, n.priority, n.available_at, n.id FROM holdfast.jobs n
    WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND -n.priority = p.rank AND n.kind <> %(undo_kind)s
      AND (%(kinds)s::text[] IS NULL OR n.kind = ANY (%(kinds)s::text[]))
    ORDER BY n.available_at, n.id LIMIT 1) j
WHERE p.rank IS NOT NULL;

-- Tasks that another transaction has locked are skipped.

-- name: take_task
SELECT id FROM holdfast.jobs
WHERE queued AND subqueue IS NULL AND queue = %(queue)s AND -priority = -%(priority)s::integer
  AND available_at <= coalesce(%(now_at)s::timestamptz, (SELECT clock_timestamp())) AND kind <> %(undo_kind)s
  AND (%(kinds)s::text[] IS NULL OR kind = ANY (%(kinds)s::text[])) AND id <> ALL (%(passed)s::bigint[])
ORDER BY available_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;

-- Tasks with an expired claim, earliest expiry first. A stalled job has no claim left. `decide` checks its resume window.

-- name: expired_tasks
WITH {clock}, {policy_times}
SELECT j.id FROM holdfast.active_jobs j JOIN times p ON p.id = j.policy_id
WHERE j.kind <> %(undo_kind)s AND j.phase IS DISTINCT FROM 'aborting'
  AND {task_filter}
  AND (j.status = 'stalled' OR j.lease_expires_at < {job_now}
    OR {beat_deadline} < {job_now})
  AND (SELECT q.paused_at FROM holdfast.queues q WHERE q.name = j.queue) IS NULL
ORDER BY coalesce(j.lease_expires_at, j.last_lease_expires_at), j.id LIMIT %(limit)s;

-- name: lock_task
SELECT id FROM holdfast.jobs WHERE id = %(id)s FOR NO KEY UPDATE SKIP LOCKED;

-- Tasks that an agent cannot claim: held by others, waiting for a dependency, scheduled for later, in a paused queue. Each count
-- stops at a limit.

-- name: idle
WITH RECURSIVE {clock},
named (queue) AS (
    (SELECT queue FROM holdfast.jobs WHERE queued AND subqueue IS NULL AND available_at > created_at AND %(queues)s::text[] IS NULL
     ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT n.queue FROM holdfast.jobs n
            WHERE n.queued AND n.subqueue IS NULL AND n.available_at > n.created_at AND n.queue > named.queue ORDER BY n.queue LIMIT 1)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM named WHERE queue IS NOT NULL
    UNION
    SELECT u.name COLLATE "C" FROM unnest(%(queues)s::text[]) AS u (name)
)
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.active_jobs j
        WHERE j.kind <> %(undo_kind)s
          AND {task_filter}
        LIMIT %(limit)s) AS found) AS held,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.waits_for > 0 AND j.queued
          AND {task_filter}
        LIMIT %(limit)s) AS found) AS waiting,
    (SELECT count(*) FROM (
        SELECT 1 FROM wanted w CROSS JOIN LATERAL (
            SELECT 1 FROM holdfast.jobs j
            WHERE j.queued AND j.subqueue IS NULL AND j.available_at > j.created_at AND j.queue = w.queue
              AND j.available_at > (SELECT at FROM clock) AND j.available_at < %(never_at)s::timestamptz
              AND j.kind <> %(undo_kind)s AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]))
            LIMIT %(limit)s) AS later
        WHERE (SELECT q.paused_at FROM holdfast.queues q WHERE q.name = w.queue) IS NULL
        LIMIT %(limit)s) AS found) AS scheduled,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.queues q CROSS JOIN LATERAL (
            SELECT 1 FROM holdfast.queued_jobs j
            WHERE j.queue = q.name AND j.waits_for + 0 = 0 AND j.kind <> %(undo_kind)s
              AND {task_filter}
            LIMIT %(limit)s) AS behind
        WHERE q.paused_at IS NOT NULL
        LIMIT %(limit)s) AS found) AS paused,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.queues q CROSS JOIN LATERAL (
            SELECT 1 FROM holdfast.jobs j
            WHERE j.queued AND j.subqueue IS NOT NULL AND j.queue = q.name AND j.waits_for + 0 = 0
              AND {task_filter}
            LIMIT %(limit)s) AS behind
        WHERE q.has_flow AND q.paused_at IS NULL
        LIMIT %(limit)s) AS found) AS limited;

-- Heartbeats that may carry a checkpoint, some from each of the latest attempts that have any. The same bytes may also be part of
-- an undo step.

-- name: checkpoint_beats
SELECT attempt, received_at AS at, actor, payload FROM (
    SELECT rev, attempt, received_at, actor, payload,
        dense_rank() OVER (ORDER BY attempt DESC) AS attempts, row_number() OVER (PARTITION BY attempt ORDER BY rev DESC) AS beats
    FROM holdfast.event_rows
    WHERE job_id = %(job_id)s AND rev > %(rev_above)s AND type = 'heartbeat' AND attempt < %(attempt)s
      AND position('"checkpoint":'::bytea IN payload) > 0
) found WHERE attempts <= %(attempts)s AND beats <= %(beats)s ORDER BY rev DESC;
