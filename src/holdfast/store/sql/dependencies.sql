-- Dependencies. The counts here are not part of the history: changing them does not change a job's revision.

-- name: dependency_states
SELECT j.id, j.status, j.rev, (
    SELECT max(r.id) FROM holdfast.jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL)
FROM {wanted_jobs};

-- name: count_dependents
SELECT id, dependents FROM holdfast.jobs WHERE id {in_ids};

-- name: depends_on
SELECT job_id, on_id FROM holdfast.dependencies WHERE job_id {in_ids};

-- name: decrement_waits
UPDATE holdfast.jobs SET waits_for = waits_for - 1 WHERE id {in_ids};

-- name: clear_open_cascades
DELETE FROM holdfast.cursors WHERE name >= 'cascade/' AND name < 'cascade0' AND pos {in_ids};

-- name: dependents
SELECT job_id FROM holdfast.dependencies WHERE on_id = :on_id AND job_id > :after ORDER BY job_id LIMIT :limit;

-- name: delete_dependencies
DELETE FROM holdfast.dependencies WHERE job_id {in_ids} OR on_id {in_ids};
