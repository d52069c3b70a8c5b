-- Totals and history: how many jobs of each status there are, and what happened in each minute and hour.

-- name: history_progress
SELECT pos, at, since_at, deletions FROM holdfast.history_progress WHERE id = 1;

-- name: ensure_progress
INSERT INTO holdfast.history_progress (id) VALUES (1) ON CONFLICT (id) DO NOTHING;

-- Changes nothing if another process has counted these events, or if some of them were deleted meanwhile.

-- name: move_progress
UPDATE holdfast.history_progress
SET pos = :pos, at = :at, since_at = coalesce(since_at, :since_at)
WHERE id = 1 AND pos = :from_pos AND deletions = :deletions
RETURNING 1;

-- name: note_deletions
UPDATE holdfast.history_progress SET deletions = deletions + 1, since_at = :since_at WHERE id = 1;

-- Whether any job was ever moved to another queue. The rows of moved jobs do not say in which queue they were before.

-- name: has_moves
SELECT EXISTS (SELECT 1 FROM holdfast.event_rows WHERE type = 'moved' AND type <> 'heartbeat');

-- name: moves
SELECT job_id, rev, payload FROM holdfast.event_rows WHERE job_id {in_ids} AND type = 'moved' ORDER BY job_id, rev;

-- The events of moved jobs, one by one.

-- name: tally_moved
SELECT minute, job_id, rev, kind, type, from_status, to_status, starts, {wait_bucket} AS wait, {run_bucket} AS run,
    coalesce(wait_us, 0) AS wait_us, coalesce(run_us, 0) AS run_us
FROM {counted_events} e
WHERE EXISTS (SELECT 1 FROM holdfast.event_rows m WHERE m.job_id = e.job_id AND m.type = 'moved')
ORDER BY job_id, rev;

-- name: delete_zero_totals
DELETE FROM holdfast.totals WHERE n = 0;

-- name: totals
SELECT queue, kind, status, n FROM holdfast.totals;

-- name: history_names
SELECT scope, name, last_at FROM holdfast.history_names;

-- name: history_series
SELECT scope, name, at, body FROM holdfast.history
WHERE step = :step AND scope = :scope AND name = :name AND at >= :since_at ORDER BY at;

-- name: history_since
SELECT scope, name, at, body FROM holdfast.history WHERE step = :step AND at >= :since_at AND scope = :scope;

-- name: delete_history_names
DELETE FROM holdfast.history_names WHERE last_at < :before_at;

-- What ever happened to kinds that have no history of their own any more.

-- name: delete_unnamed_history
DELETE FROM holdfast.history WHERE step = 'ever' AND scope = 'kind' AND name <> ''
  AND NOT EXISTS (SELECT 1 FROM holdfast.history_names n WHERE n.scope = 'kind' AND n.name = holdfast.history.name);

-- What the counted events say about jobs that are deleted now. A job may have events that are not counted if it is `near`:
-- the events of one statement are at the position that it drew, which its jobs have in common, and at those after it.

-- name: counted_jobs
SELECT j.id, j.queue, j.kind, j.status, j.updated_at, j.enqueued_pos > :pos AS is_new,
    j.last_pos > :near OR EXISTS (SELECT 1 FROM holdfast.event_rows e WHERE e.job_id = j.id AND e.pos > :pos) AS is_near
FROM {wanted_jobs};

-- name: uncounted_jobs
SELECT DISTINCT e.job_id FROM {job_events} e WHERE e.pos > :pos;

-- name: counted_statuses
SELECT e.job_id, e.rev, e.to_status FROM {job_events} e WHERE e.pos <= :pos ORDER BY e.job_id, e.rev;
