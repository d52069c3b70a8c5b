-- Sessions of agents, the tasks that they may claim next, and the events and checkpoints that are shown to them.

-- name: save_agent
INSERT INTO holdfast_agents (name, session, focus, last, cursor, updated_at)
VALUES (:name, :session, :focus, :last, :cursor, :now_at)
ON CONFLICT (name, session) DO UPDATE
SET focus = excluded.focus, last = excluded.last, cursor = max(cursor, excluded.cursor), updated_at = excluded.updated_at;

-- name: prune_agents
DELETE FROM holdfast_agents WHERE (name, session) IN (
    SELECT a.name, a.session FROM holdfast_agents a
    WHERE a.updated_at < :before_at AND (a.name, a.session) NOT IN (
        SELECT j.owner, j.incarnation FROM holdfast_active_jobs j
        WHERE j.owner IS NOT NULL AND j.incarnation IS NOT NULL)
    LIMIT :limit)
RETURNING 1;

-- The first job of every priority of every queue, by index lookups only: each step jumps to the next queue or priority and skips
-- the other jobs of the one before.

-- name: first_tasks
WITH RECURSIVE named (queue) AS (
    SELECT min(queue) FROM holdfast_jobs INDEXED BY holdfast_jobs_ready WHERE queued AND subqueue IS NULL AND :queues IS NULL
    UNION ALL
    SELECT (SELECT min(n.queue) FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
            WHERE n.queued AND n.subqueue IS NULL AND n.queue > named.queue)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM named WHERE queue IS NOT NULL
    UNION
    SELECT value FROM json_each(coalesce(:queues, '[]'))
),
places (queue, priority) AS (
    SELECT w.queue, (SELECT max(n.priority) FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
                     WHERE n.queued AND n.subqueue IS NULL AND n.queue = w.queue)
    FROM wanted w WHERE (SELECT p.paused_at FROM holdfast_queues p WHERE p.name = w.queue) IS NULL
    UNION ALL
    SELECT p.queue, (SELECT max(n.priority) FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
                     WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND n.priority < p.priority)
    FROM places p WHERE p.priority IS NOT NULL
)
SELECT j.queue, j.priority, j.available_at, j.id
FROM places p
JOIN holdfast_jobs j ON j.id = (
    SELECT n.id FROM holdfast_jobs n INDEXED BY holdfast_jobs_ready
    WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND n.priority = p.priority AND n.kind <> :undo_kind
      AND (:kinds IS NULL OR n.kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY n.available_at, n.id LIMIT 1)
WHERE p.priority IS NOT NULL;

-- name: take_task
SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_ready
WHERE queued AND subqueue IS NULL AND queue = :queue AND priority = :priority AND available_at <= :now_at AND kind <> :undo_kind
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds))) AND id NOT IN (SELECT value FROM json_each(:passed))
ORDER BY available_at, id LIMIT 1;

-- Tasks with an expired claim, earliest expiry first. A stalled job has no claim left. `decide` checks its resume window.

-- name: expired_tasks
WITH {policy_times}
SELECT j.id FROM holdfast_active_jobs j JOIN times p ON p.id = j.policy_id
WHERE j.kind <> :undo_kind AND j.phase IS NOT 'aborting'
  AND {task_filter}
  AND (j.status = 'stalled' OR j.lease_expires_at < {job_now}
    OR {beat_deadline} < {job_now})
  AND (SELECT q.paused_at FROM holdfast_queues q WHERE q.name = j.queue) IS NULL
ORDER BY coalesce(j.lease_expires_at, j.last_lease_expires_at), j.id LIMIT :limit;

-- name: lock_task
SELECT id FROM holdfast_jobs WHERE id = :id;

-- Tasks that an agent cannot claim: held by others, waiting for a dependency, scheduled for later, in a paused queue. Each count
-- stops at a limit.

-- name: idle
WITH RECURSIVE named (queue) AS (
    SELECT min(queue) FROM holdfast_jobs INDEXED BY holdfast_jobs_delayed
    WHERE queued AND subqueue IS NULL AND available_at > created_at AND :queues IS NULL
    UNION ALL
    SELECT (SELECT min(n.queue) FROM holdfast_jobs n INDEXED BY holdfast_jobs_delayed
            WHERE n.queued AND n.subqueue IS NULL AND n.available_at > n.created_at AND n.queue > named.queue)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS (
    SELECT queue FROM named WHERE queue IS NOT NULL
    UNION
    SELECT value FROM json_each(coalesce(:queues, '[]'))
)
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_active_jobs j
        WHERE j.kind <> :undo_kind
          AND {task_filter}
        LIMIT :limit)) AS held,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_waiting
        WHERE j.waits_for > 0 AND j.queued
          AND {task_filter}
        LIMIT :limit)) AS waiting,
    (SELECT count(*) FROM (
        SELECT 1 FROM wanted w CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_delayed
        WHERE j.queued AND j.subqueue IS NULL AND j.available_at > j.created_at AND j.queue = w.queue AND j.available_at > :now_at
          AND j.available_at < :never_at AND j.kind <> :undo_kind
          AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)))
          AND (SELECT q.paused_at FROM holdfast_queues q WHERE q.name = w.queue) IS NULL
        LIMIT :limit)) AS scheduled,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_queues q CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_ready
        WHERE q.paused_at IS NOT NULL AND j.queued AND j.subqueue IS NULL AND j.queue = q.name AND j.waits_for + 0 = 0
          AND j.kind <> :undo_kind
          AND {task_filter}
        UNION ALL
        SELECT 1 FROM holdfast_queues q CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
        WHERE q.paused_at IS NOT NULL AND j.queued AND j.subqueue IS NOT NULL AND j.queue = q.name AND j.waits_for + 0 = 0
          AND {task_filter}
        LIMIT :limit)) AS paused,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_queues q CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_subqueue
        WHERE q.has_flow AND q.paused_at IS NULL AND j.queued AND j.subqueue IS NOT NULL AND j.queue = q.name
          AND j.waits_for + 0 = 0
          AND {task_filter}
        LIMIT :limit)) AS limited;

-- Heartbeats that may carry a checkpoint, some from each of the latest attempts that have any. The same bytes may also be part of
-- an undo step.

-- name: checkpoint_beats
SELECT attempt, received_at AS at, actor, payload FROM (
    SELECT rev, attempt, received_at, actor, payload,
        dense_rank() OVER (ORDER BY attempt DESC) AS attempts, row_number() OVER (PARTITION BY attempt ORDER BY rev DESC) AS beats
    FROM holdfast_event_rows
    WHERE job_id = :job_id AND rev > :rev_above AND type = 'heartbeat' AND attempt < :attempt
      AND instr(payload, CAST('"checkpoint":' AS BLOB)) > 0
) WHERE attempts <= :attempts AND beats <= :beats ORDER BY rev DESC;
