-- Groups of jobs. The lock of a job that joins conflicts only with the lock of `lock_group`: counts may change meanwhile.

-- name: join_groups
SELECT g.id, g.name, g.closed_at IS NOT NULL AS is_closed,
    g.joined + (SELECT coalesce(sum(c.joined), 0) FROM holdfast.group_changes c WHERE c.group_id = g.id) AS joined,
    (SELECT count(*) FROM holdfast.group_changes c WHERE c.group_id = g.id) AS rows
FROM holdfast.groups g WHERE g.name = ANY (%(names)s::text[]) ORDER BY g.id FOR KEY SHARE OF g;

-- name: lock_group
SELECT {group_columns} FROM holdfast.groups g WHERE g.name = %(name)s FOR UPDATE;

-- name: take_group
SELECT {group_columns} FROM holdfast.groups g WHERE g.id = %(group_id)s FOR NO KEY UPDATE SKIP LOCKED;

-- name: group_jobs
SELECT j.id FROM holdfast.jobs j
WHERE j.group_id = %(group_id)s AND j.group_id IS NOT NULL AND j.id > %(after)s AND j.status = ANY (%(statuses)s::text[])
  AND (%(discarded)s OR {not_discarded})
ORDER BY j.id LIMIT %(limit)s;

-- name: prune_groups
DELETE FROM holdfast.groups WHERE id IN (
    SELECT g.id FROM holdfast.groups g
    WHERE g.done_at < %(before_at)s
      AND NOT EXISTS (SELECT FROM holdfast.jobs j WHERE j.group_id = g.id AND j.group_id IS NOT NULL)
      AND NOT EXISTS (SELECT FROM holdfast.group_changes c WHERE c.group_id = g.id)
      AND NOT (g.then_joins IS NOT NULL AND g.then_job IS NULL AND g.cancelled_at IS NULL
          AND EXISTS (SELECT FROM holdfast.groups p WHERE p.name = g.then_joins AND p.closed_at IS NULL))
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;
