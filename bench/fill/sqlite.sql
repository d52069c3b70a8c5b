-- Many jobs at once, with the events they would have had. Ids and positions come from the caller. The jobs are in groups of 1,000:
-- each group has a batch for each statement that would have changed it. The positions of a group start at `pos`. If it has fewer
-- jobs, the positions of the missing ones are not used.

-- name: queued_jobs
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, enqueued_pos,
    last_pos, payload)
SELECT ids.id, :queue, f.kind, 1, 'queued', 1, 0, 0, :now, :now, :now, f.id, :pos + (ids.id - :first) / 1000 * 1000,
    :pos + (ids.id - :first) / 1000 * 1000,
    CAST('{"queue":"' || :queue || '","kind":"' || :kind || '","args":{"customer":' || ids.id || ',"path":"/reports/' || ids.id
        || '"}}' AS BLOB)
FROM ids, holdfast_profiles f WHERE f.kind = :kind;

-- name: queued_batches
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_event_batches (pos, received_at, size, rev, attempt, type, to_status, actor, jobs)
SELECT :pos + (id - :first) / 1000 * 1000, :now, count(*), 1, 0, 'enqueued', 'queued', 'client:fill', json_group_array(id)
FROM ids GROUP BY 1;

-- name: finished_jobs
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, policy_id,
    incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at, last_owner, last_lease_expires_at,
    enqueued_pos, claim_pos, last_pos, payload, result)
SELECT ids.id, :queue, f.kind, 0, 'succeeded', 4, 1, 0, :now, :now, :now, f.id, f.policy_id,
    'fill', '0123456789abcdef0123456789abcdef', :now, :now, :now, :now, :now, 'fill', :now + p.lease_us,
    :pos + (ids.id - :first) / 1000 * 4000, :pos + (ids.id - :first) / 1000 * 4000 + 1000,
    :pos + (ids.id - :first) / 1000 * 4000 + 3000,
    CAST('{"queue":"' || :queue || '","kind":"' || :kind || '","args":{"customer":' || ids.id || ',"path":"/reports/' || ids.id
        || '"}}' AS BLOB),
    CAST('{"result":{"pages":12}}' AS BLOB)
FROM ids, holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.kind = :kind;

-- name: finished_batches
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last),
groups (pos, size, jobs) AS (
    SELECT :pos + (id - :first) / 1000 * 4000, count(*), json_group_array(id) FROM ids GROUP BY 1),
steps (after, rev, type, actor, attempt, from_status, to_status, starts) AS (
    VALUES (0, 1, 'enqueued', 'client:fill', 0, NULL, 'queued', 0),
        (1000, 2, 'claimed', 'worker:fill#fill', 1, 'queued', 'claimed', 1),
        (3000, 4, 'succeeded', 'worker:fill#fill', 1, 'running', 'succeeded', 0))
INSERT INTO holdfast_event_batches (
    pos, received_at, claim_pos, size, rev, attempt, policy_id, starts, type, from_status, to_status, actor, request_id, jobs)
SELECT g.pos + s.after, :now, iif(s.type = 'succeeded', g.pos + 1000, NULL), g.size * (1 + s.starts), s.rev, s.attempt,
    iif(s.type = 'claimed', f.policy_id, NULL), s.starts, s.type, s.from_status, s.to_status, s.actor,
    iif(s.rev > 1, '0123456789abcdef01234567', NULL), g.jobs
FROM groups g CROSS JOIN steps s CROSS JOIN holdfast_profiles f WHERE f.kind = :kind;

-- name: last_pos
UPDATE holdfast_positions SET last = (SELECT max(pos + size - 1) FROM holdfast_event_batches);

-- The ledger keeps the times of blocks of events. If it had to add those of filled events, the first drains would pay for them.

-- name: times
INSERT INTO holdfast_times (pos, after_pos, min_at, max_at, high_at)
SELECT b.pos + b.size - 1, lag(b.pos + b.size - 1, 1, t.pos) OVER (ORDER BY b.pos), b.received_at, b.received_at,
    max(t.high_at, max(b.received_at) OVER (ORDER BY b.pos))
FROM holdfast_event_batches b
CROSS JOIN (SELECT coalesce(max(pos), 0) AS pos, coalesce(max(high_at), 0) AS high_at FROM holdfast_times) t
WHERE b.pos > t.pos;
