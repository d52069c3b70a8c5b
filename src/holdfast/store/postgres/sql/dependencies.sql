-- Jobs that wait for others. What is counted here is bookkeeping beside the history: no revision moves with it.

-- name: draw_ids
SELECT nextval('holdfast.job_id') FROM unnest(%(numbers)s::integer[]);

-- name: standings
SELECT j.id, j.status, j.rev, (
    SELECT max(r.id) FROM holdfast.jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL)
FROM unnest(%(ids)s::bigint[]) AS wanted (id)
JOIN holdfast.jobs j ON j.id = wanted.id;

-- name: insert_dependencies
INSERT INTO holdfast.dependencies (job_id, on_id)
SELECT job_id, on_id FROM unnest(%(lefts)s::bigint[], %(rights)s::bigint[]) AS edge (job_id, on_id);

-- name: set_waits
UPDATE holdfast.jobs j SET waits_for = counted.count
FROM unnest(%(lefts)s::bigint[], %(rights)s::integer[]) AS counted (id, count) WHERE j.id = counted.id;

-- Their rows are locked already, in order.

-- name: add_dependents
UPDATE holdfast.jobs j SET dependents = j.dependents + counted.count
FROM unnest(%(lefts)s::bigint[], %(rights)s::integer[]) AS counted (id, count) WHERE j.id = counted.id;

-- name: lock_waiting
SELECT w.id FROM holdfast.jobs w
WHERE w.id = ANY (ARRAY (SELECT d.job_id FROM holdfast.dependencies d WHERE d.on_id = ANY (%(on_ids)s::bigint[])))
  AND w.waits_for > 0
ORDER BY w.id FOR UPDATE;

-- name: meet
UPDATE holdfast.jobs SET waits_for = waits_for - 1
WHERE id = ANY (%(ids)s::bigint[]) AND waits_for > 0
RETURNING id, waits_for;

-- Everybody who might be told of the end of these jobs, however far away; with them themselves.

-- name: downstream
WITH RECURSIVE down (id) AS (
    SELECT unnest(%(ids)s::bigint[])
    UNION
    SELECT d.job_id FROM down JOIN holdfast.dependencies d ON d.on_id = down.id
    JOIN holdfast.jobs w ON w.id = d.job_id AND w.waits_for > 0
)
SELECT id FROM down;

-- name: hand_on
UPDATE holdfast.dependencies d SET on_id = %(to_id)s
WHERE d.on_id = %(from_id)s AND EXISTS (SELECT 1 FROM holdfast.jobs w WHERE w.id = d.job_id AND w.waits_for > 0)
RETURNING d.job_id;

-- name: dependents
SELECT job_id FROM holdfast.dependencies WHERE on_id = %(on_id)s AND job_id > %(after)s ORDER BY job_id LIMIT %(limit)s;

-- Of these jobs, those that somebody still waits for.

-- name: waited_for
SELECT DISTINCT d.on_id FROM holdfast.dependencies d
JOIN holdfast.jobs w ON w.id = d.job_id
WHERE d.on_id = ANY (%(ids)s::bigint[]) AND w.waits_for > 0;

-- name: delete_dependencies
DELETE FROM holdfast.dependencies WHERE job_id = ANY (%(ids)s::bigint[]) OR on_id = ANY (%(ids)s::bigint[]);

-- name: list_waiting
SELECT id FROM holdfast.jobs
WHERE id > %(after)s AND waits_for > 0
  AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(jobs)s::bigint[] IS NULL OR id = ANY (%(jobs)s::bigint[]))
  AND (%(replay_of)s::bigint IS NULL OR replay_of = %(replay_of)s::bigint)
ORDER BY id LIMIT %(limit)s;
