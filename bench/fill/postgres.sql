-- Many jobs at once, with the events they would have had. Ids and positions come from the caller. The jobs are in groups of 1,000:
-- each group has a batch for each statement that would have changed it. The positions of a group start at `pos` and are 2,048
-- apart for each statement, as if the sequence had drawn them.

-- name: queued_jobs
INSERT INTO holdfast.jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, enqueued_pos,
    last_pos, payload)
SELECT ids.id, %(queue)s, f.kind, true, 'queued', 1, 0, 0, now(), now(), now(), f.id, at.pos, at.pos,
    convert_to(format('{"queue":"%%s","kind":"%%s","args":{"customer":%%s,"path":"/reports/%%s"}}',
        %(queue)s::text, %(kind)s::text, ids.id, ids.id), 'UTF8')
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id)
CROSS JOIN LATERAL (SELECT %(pos)s::bigint + (ids.id - %(first)s) / 1000 * 2048) AS at (pos)
CROSS JOIN holdfast.profiles f WHERE f.kind = %(kind)s;

-- name: queued_batches
INSERT INTO holdfast.event_batches (pos, received_at, size, rev, attempt, type, to_status, actor, jobs)
SELECT %(pos)s::bigint + (id - %(first)s) / 1000 * 2048, now(), count(*), 1, 0, 'enqueued', 'queued', 'client:fill', array_agg(id)
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id) GROUP BY 1;

-- name: finished_jobs
INSERT INTO holdfast.jobs (
    id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, policy_id,
    incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at, last_owner, last_lease_expires_at,
    enqueued_pos, claim_pos, last_pos, payload, result)
SELECT ids.id, %(queue)s, f.kind, false, 'succeeded', 4, 1, 0, now(), now(), now(), f.id, f.policy_id,
    'fill', '0123456789abcdef0123456789abcdef', now(), now(), now(), now(), now(), 'fill', now() + p.lease,
    at.pos, at.pos + 2048, at.pos + 4096,
    convert_to(format('{"queue":"%%s","kind":"%%s","args":{"customer":%%s,"path":"/reports/%%s"}}',
        %(queue)s::text, %(kind)s::text, ids.id, ids.id), 'UTF8'),
    '{"result":{"pages":12}}'::bytea
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id)
CROSS JOIN LATERAL (SELECT %(pos)s::bigint + (ids.id - %(first)s) / 1000 * 6144) AS at (pos)
CROSS JOIN holdfast.profiles f JOIN holdfast.policies p ON p.id = f.policy_id
WHERE f.kind = %(kind)s;

-- name: finished_batches
INSERT INTO holdfast.event_batches (
    pos, received_at, claim_pos, size, rev, attempt, policy_id, starts, type, from_status, to_status, actor, request_id, jobs)
SELECT g.pos + s.after, now(), CASE s.type WHEN 'succeeded' THEN g.pos + 2048 END, g.size * (1 + s.starts::integer), s.rev, s.attempt,
    CASE s.type WHEN 'claimed' THEN f.policy_id END, s.starts, s.type, s.from_status, s.to_status, s.actor,
    CASE WHEN s.rev > 1 THEN '0123456789abcdef01234567' END, g.jobs
FROM (
    SELECT %(pos)s::bigint + (id - %(first)s) / 1000 * 6144 AS pos, count(*) AS size, array_agg(id) AS jobs
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id) GROUP BY 1
) AS g
CROSS JOIN (
    VALUES (0, 1, 'enqueued', 'client:fill', 0, NULL, 'queued', false),
        (2048, 2, 'claimed', 'worker:fill#fill', 1, 'queued', 'claimed', true),
        (4096, 4, 'succeeded', 'worker:fill#fill', 1, 'running', 'succeeded', false)
) AS s (after, rev, type, actor, attempt, from_status, to_status, starts)
CROSS JOIN holdfast.profiles f WHERE f.kind = %(kind)s;

-- name: last_pos
SELECT max(pos) + 2048 FROM holdfast.event_batches;
