-- Many jobs at once, with the events they would have had. Ids come from the caller; positions count themselves.

-- name: queued_jobs
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_jobs (
    id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, dedupe_forever)
SELECT ids.id, :queue, f.kind, 'queued', 1, 0, 0, :now, :now, :now, f.id, 0
FROM ids, holdfast_profiles f WHERE f.kind = :kind;

-- name: queued_events
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_events (job_id, rev, type, received_at, actor, attempt, to_status, payload)
SELECT id, 1, 'enqueued', :now, 'client:fill', 0, 'queued',
    CAST('{"queue":"' || :queue || '","kind":"' || :kind || '","args":{"customer":' || id || ',"path":"/reports/' || id
        || '"}}' AS BLOB)
FROM ids;

-- name: finished_jobs
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last)
INSERT INTO holdfast_jobs (
    id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id, policy_id,
    incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at, last_owner, last_lease_expires_at,
    result_rev)
SELECT ids.id, :queue, f.kind, 'succeeded', 4, 1, 0, :now, :now, :now, f.id, f.policy_id,
    'fill', '0123456789abcdef0123456789abcdef', :now, :now, :now, :now, :now, 'fill', :now + p.lease_us, 4
FROM ids, holdfast_profiles f JOIN holdfast_policies p ON p.id = f.policy_id WHERE f.kind = :kind;

-- name: finished_events
WITH RECURSIVE ids (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM ids WHERE id < :last),
steps (rev, type, actor, attempt, from_status, to_status) AS (
    VALUES (1, 'enqueued', 'client:fill', 0, NULL, 'queued'),
        (2, 'claimed', 'worker:fill#fill', 1, 'queued', 'claimed'),
        (3, 'started', 'worker:fill#fill', 1, 'claimed', 'running'),
        (4, 'succeeded', 'worker:fill#fill', 1, 'running', 'succeeded'))
INSERT INTO holdfast_events (
    job_id, rev, type, received_at, actor, attempt, from_status, to_status, request_id, payload, policy_id)
SELECT ids.id, s.rev, s.type, :now, s.actor, s.attempt, s.from_status, s.to_status,
    CASE WHEN s.rev > 1 THEN '0123456789abcdef01234567' END,
    CASE s.rev
        WHEN 1 THEN CAST('{"queue":"' || :queue || '","kind":"' || :kind || '","args":{"customer":' || ids.id
            || ',"path":"/reports/' || ids.id || '"}}' AS BLOB)
        WHEN 4 THEN CAST('{"result":{"pages":12}}' AS BLOB) END,
    CASE s.rev WHEN 2 THEN f.policy_id END
FROM ids CROSS JOIN steps s CROSS JOIN holdfast_profiles f WHERE f.kind = :kind;
