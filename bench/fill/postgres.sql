-- Many jobs at once, with the events they would have had. Ids come from the caller; positions count themselves.

-- name: queued_jobs
INSERT INTO holdfast.jobs (id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id)
SELECT ids.id, %(queue)s, f.kind, 'queued', 1, 0, 0, now(), now(), now(), f.id
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id), holdfast.profiles f WHERE f.kind = %(kind)s;

-- name: queued_events
INSERT INTO holdfast.events (job_id, rev, type, received_at, actor, attempt, to_status, payload)
SELECT id, 1, 'enqueued', now(), 'client:fill', 0, 'queued',
    convert_to(format('{"queue":"%%s","kind":"%%s","args":{"customer":%%s,"path":"/reports/%%s"}}',
        %(queue)s::text, %(kind)s::text, id, id), 'UTF8')
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id);

-- name: finished_jobs
INSERT INTO holdfast.jobs (
    id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, policy_id,
    incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at, last_owner, last_lease_expires_at,
    result_rev)
SELECT ids.id, %(queue)s, f.kind, 'succeeded', 4, 1, 0, now(), now(), now(), f.id, f.policy_id,
    'fill', '0123456789abcdef0123456789abcdef', now(), now(), now(), now(), now(), 'fill', now() + p.lease, 4
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id),
    holdfast.profiles f JOIN holdfast.policies p ON p.id = f.policy_id
WHERE f.kind = %(kind)s;

-- name: finished_events
INSERT INTO holdfast.events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload, policy_id)
SELECT ids.id, s.rev, s.type, now(), s.actor, s.attempt, s.from_status, s.to_status,
    CASE WHEN s.rev > 1 THEN '0123456789abcdef01234567' END,
    CASE s.rev
        WHEN 1 THEN convert_to(format('{"queue":"%%s","kind":"%%s","args":{"customer":%%s,"path":"/reports/%%s"}}',
            %(queue)s::text, %(kind)s::text, ids.id, ids.id), 'UTF8')
        WHEN 4 THEN '{"result":{"pages":12}}'::bytea END,
    CASE s.rev WHEN 2 THEN f.policy_id END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS ids (id)
CROSS JOIN (
    VALUES (1, 'enqueued', 'client:fill', 0, NULL, 'queued'),
        (2, 'claimed', 'worker:fill#fill', 1, 'queued', 'claimed'),
        (3, 'started', 'worker:fill#fill', 1, 'claimed', 'running'),
        (4, 'succeeded', 'worker:fill#fill', 1, 'running', 'succeeded')
) AS s (rev, type, actor, attempt, from_status, to_status)
CROSS JOIN holdfast.profiles f WHERE f.kind = %(kind)s;
