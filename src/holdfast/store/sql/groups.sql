-- Groups of jobs.

-- part: group_columns
g.id, g.name, g.body, g.created_at, g.created_by, g.closed_at, g.closed_by, g.cancelled_at, g.dead_at, g.done_at, g.then_job,
g.on_dead_job, g.last_error, g.joined, g.succeeded, g.failed, g.cancelled, g.dead_lettered;

-- name: find_group
SELECT {group_columns} FROM holdfast.groups g WHERE g.name = :name;

-- name: groups
SELECT {group_columns} FROM holdfast.groups g
WHERE g.name > :after AND (:finished OR g.done_at IS NULL) ORDER BY g.name LIMIT :limit;

-- name: count_unfinished_groups
SELECT count(*) FROM holdfast.groups WHERE done_at IS NULL;

-- Groups whose follow-up job was refused, or is not made because some jobs did not succeed, and groups that are open though all
-- their jobs have ended.

-- name: troubled_groups
SELECT {group_columns} FROM holdfast.groups g
WHERE (g.dead_at IS NOT NULL OR g.last_error IS NOT NULL)
  AND ((g.last_error IS NOT NULL AND g.cancelled_at IS NULL) OR (g.done_at IS NOT NULL AND g.cancelled_at IS NULL AND g.succeeded < g.joined))
UNION ALL
SELECT {group_columns} FROM holdfast.groups g
WHERE g.done_at IS NULL AND g.closed_at IS NULL AND g.last_error IS NULL AND g.created_at < :before_at AND g.joined > 0
  AND g.joined = g.succeeded + g.failed + g.cancelled + g.dead_lettered
LIMIT :limit;

-- name: add_group
INSERT INTO holdfast.groups (name, body, created_at, created_by, then_joins, on_dead_joins)
VALUES (:name, :body, :made_at, :made_by, :then_joins, :on_dead_joins)
ON CONFLICT (name) DO NOTHING;

-- Groups with a follow-up job that joins another group and is not made yet.

-- name: joining_groups
SELECT {group_columns} FROM holdfast.groups g WHERE g.then_joins = :name AND g.then_job IS NULL
UNION
SELECT {group_columns} FROM holdfast.groups g WHERE g.on_dead_joins = :name AND g.on_dead_job IS NULL
ORDER BY name;

-- name: set_group_closed
UPDATE holdfast.groups
SET closed_by = CASE WHEN closed_at IS NULL THEN :closed_by ELSE closed_by END, closed_at = coalesce(closed_at, :closed_at),
    cancelled_at = CASE WHEN :cancelled THEN coalesce(cancelled_at, :closed_at) ELSE cancelled_at END, last_error = NULL
WHERE id = :group_id;

-- name: uncancel_group
UPDATE holdfast.groups SET cancelled_at = NULL WHERE id = :group_id;

-- name: live_statuses
SELECT status, count(*) FROM holdfast.jobs
WHERE group_id = :group_id AND group_id IS NOT NULL AND status IN ('queued', 'claimed', 'running', 'stalled') GROUP BY status;

-- Jobs that have ended and are saved already.

-- name: note_ended
INSERT INTO holdfast.group_changes (group_id, succeeded, failed, cancelled, dead_lettered)
SELECT j.group_id, sum(CASE j.status WHEN 'succeeded' THEN 1 ELSE 0 END), sum(CASE j.status WHEN 'failed' THEN 1 ELSE 0 END),
    sum(CASE j.status WHEN 'cancelled' THEN 1 ELSE 0 END), sum(CASE j.status WHEN 'dead_lettered' THEN 1 ELSE 0 END)
FROM {wanted_jobs}
WHERE j.group_id IS NOT NULL GROUP BY j.group_id
RETURNING group_id;

-- name: add_group_changes
INSERT INTO holdfast.group_changes (group_id, joined, succeeded, failed, cancelled, dead_lettered)
VALUES (:group_id, :joined, :succeeded, :failed, :cancelled, :dead_lettered);

-- name: pending_changes
SELECT group_id, count(*), sum(joined), sum(succeeded), sum(failed), sum(cancelled), sum(dead_lettered)
FROM holdfast.group_changes WHERE group_id {in_ids} GROUP BY group_id;

-- The groups among these whose counts lack changes, each with the number and the sums of its changes. A process runs this after
-- most of its commits that end jobs of groups, so it is one statement.

-- name: changed_groups
SELECT {group_columns}, count(*), sum(c.joined), sum(c.succeeded), sum(c.failed), sum(c.cancelled), sum(c.dead_lettered)
FROM holdfast.group_changes c JOIN holdfast.groups g ON g.id = c.group_id
WHERE c.group_id {in_ids} GROUP BY g.id;

-- name: changed_group_ids
SELECT DISTINCT group_id FROM holdfast.group_changes ORDER BY group_id LIMIT :limit;

-- name: take_group_changes
DELETE FROM holdfast.group_changes WHERE group_id = :group_id RETURNING joined, succeeded, failed, cancelled, dead_lettered;

-- name: save_counts
UPDATE holdfast.groups
SET joined = :joined, succeeded = :succeeded, failed = :failed, cancelled = :cancelled, dead_lettered = :dead_lettered,
    dead_at = :dead_at, done_at = :done_at, last_error = :last_error, then_job = coalesce(:then_job, then_job),
    on_dead_job = coalesce(:on_dead_job, on_dead_job)
WHERE id = :group_id;

-- The job that a group counts for a job: the job itself, or one of its replays.

-- name: group_place
WITH RECURSIVE line (id) AS (
    SELECT j.id FROM holdfast.jobs j WHERE j.id = :job_id
    UNION
    SELECT j.id FROM line JOIN holdfast.jobs j ON j.replay_of = line.id AND j.replay_of IS NOT NULL
)
SELECT j.id AS job_id, j.group_id, j.status FROM line JOIN holdfast.jobs j ON j.id = line.id WHERE j.group_id IS NOT NULL LIMIT 1;

-- name: leave_group
UPDATE holdfast.jobs SET group_id = NULL WHERE id = :job_id;

-- name: enter_group
UPDATE holdfast.jobs SET group_id = :group_id WHERE id = :job_id;
