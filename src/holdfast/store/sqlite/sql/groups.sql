-- Groups of jobs. The only writer needs no locks.

-- name: join_groups
SELECT g.id, g.name, g.closed_at IS NOT NULL AS is_closed,
    g.joined + (SELECT coalesce(sum(c.joined), 0) FROM holdfast_group_changes c WHERE c.group_id = g.id) AS joined,
    (SELECT count(*) FROM holdfast_group_changes c WHERE c.group_id = g.id) AS rows
FROM holdfast_groups g WHERE g.name IN (SELECT value FROM json_each(:names)) ORDER BY g.id;

-- name: lock_group
SELECT {group_columns} FROM holdfast_groups g WHERE g.name = :name;

-- name: take_group
SELECT {group_columns} FROM holdfast_groups g WHERE g.id = :group_id;

-- name: group_jobs
SELECT j.id FROM holdfast_jobs j
WHERE j.group_id = :group_id AND j.group_id IS NOT NULL AND j.id > :after
  AND j.status IN (SELECT value FROM json_each(:statuses)) AND (:discarded OR {not_discarded})
ORDER BY j.id LIMIT :limit;

-- name: prune_groups
DELETE FROM holdfast_groups WHERE id IN (
    SELECT g.id FROM holdfast_groups g
    WHERE g.done_at < :before_at
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.group_id = g.id AND j.group_id IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM holdfast_group_changes c WHERE c.group_id = g.id)
      AND NOT (g.then_joins IS NOT NULL AND g.then_job IS NULL AND g.cancelled_at IS NULL
          AND EXISTS (SELECT 1 FROM holdfast_groups p WHERE p.name = g.then_joins AND p.closed_at IS NULL))
    LIMIT :limit)
RETURNING 1;
