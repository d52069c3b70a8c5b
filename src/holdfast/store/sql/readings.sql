-- What a dashboard shows of many jobs, and of one.

-- name: attention_jobs
SELECT j.id, j.queue, j.kind, j.status, j.phase, coalesce(j.owner, j.last_owner) AS worker, j.stall_reason, j.stalled_at,
    j.assist_requested, j.policy_id, (
        SELECT max(e.received_at) FROM holdfast.event_rows e
        WHERE e.job_id = j.id AND e.attempt = j.attempt AND e.reason = 'ASSIST_REQUESTED') AS requested_at, (
        SELECT max(e.received_at) FROM holdfast.event_rows e
        WHERE e.job_id = j.id AND e.attempt = j.attempt AND e.type = 'assist_started') AS assisted_at, (
        SELECT e.actor FROM holdfast.event_rows e
        WHERE e.job_id = j.id AND e.attempt = j.attempt AND e.type = 'assist_started' ORDER BY e.rev DESC LIMIT 1) AS assisted_by
FROM holdfast.active_jobs j
WHERE j.assist_requested OR j.phase = 'assisted' OR j.status = 'stalled'
-- Requests for assistance first: a crowd of stalled jobs must not use up the limit.
ORDER BY CASE WHEN j.assist_requested THEN 0 WHEN j.phase = 'assisted' THEN 1 ELSE 2 END, j.id LIMIT :limit;

-- name: failed_compensations
SELECT j.id, j.queue, j.kind, j.status, e.received_at AS at, e.actor, e.reason
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.type = 'compensation_failed' AND e.type <> 'heartbeat' AND j.note = 'compensation_failed'
ORDER BY e.received_at DESC, e.pos DESC LIMIT :limit;

-- name: agent_sessions
SELECT a.name, a.session, a.focus, j.claimed_at AS since_at, a.updated_at AS seen_at, coalesce(h.jobs, 0) AS holding, a.last, a.cursor
FROM holdfast.agents a
LEFT JOIN holdfast.jobs j ON j.id = a.focus AND j.owner = a.name AND j.incarnation = a.session
LEFT JOIN (
    SELECT owner, incarnation, count(*) AS jobs FROM holdfast.active_jobs
    WHERE status IN ('claimed', 'running')
    GROUP BY owner, incarnation) AS h ON h.owner = a.name AND h.incarnation = a.session
ORDER BY a.updated_at DESC, a.name, a.session LIMIT :limit;

-- name: letters
SELECT j.id, j.rev, j.queue, j.kind, j.reason_code, j.failure_stage, j.last_error, j.finished_at
FROM holdfast.jobs j
WHERE j.ended = 'dead_lettered' AND j.ended IS NOT NULL
  AND (CAST(:queue AS text) IS NULL OR j.queue = CAST(:queue AS text)) AND (CAST(:kind AS text) IS NULL OR j.kind = CAST(:kind AS text))
  AND {not_discarded}
ORDER BY j.id DESC LIMIT :limit;

-- The newest dead letters that are not discarded, by queue and kind, and how many of them were replayed. A replay that failed or
-- was cancelled does not count, unless it was replayed itself.

-- name: count_letters
WITH RECURSIVE letters AS (
    SELECT j.id, j.queue, j.kind FROM holdfast.jobs j
    WHERE j.ended = 'dead_lettered' AND j.ended IS NOT NULL AND {not_discarded}
    ORDER BY j.id DESC LIMIT :limit
), line(letter, id, status) AS (
    SELECT j.replay_of, j.id, j.status FROM letters CROSS JOIN holdfast.jobs j
    WHERE j.replay_of = letters.id AND j.replay_of IS NOT NULL
    UNION
    SELECT line.letter, j.id, j.status FROM line CROSS JOIN holdfast.jobs j
    WHERE j.replay_of = line.id AND j.replay_of IS NOT NULL AND line.status IN ('failed', 'cancelled')
)
SELECT l.queue, l.kind, count(*) AS n, count(r.letter) AS replayed
FROM letters l LEFT JOIN (SELECT DISTINCT letter FROM line WHERE status NOT IN ('failed', 'cancelled')) AS r ON r.letter = l.id
GROUP BY l.queue, l.kind ORDER BY l.queue, l.kind;

-- name: recent_errors
SELECT j.kind, e.type, e.payload
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.type IN ('failed', 'dead_lettered', 'stalled') AND e.type <> 'heartbeat' AND e.received_at >= :since_at
ORDER BY e.received_at DESC, e.pos DESC LIMIT :limit;

-- name: dependency_edges
SELECT on_id, job_id FROM holdfast.dependencies WHERE job_id {in_ids} ORDER BY job_id, on_id LIMIT :limit;

-- name: dependent_edges
SELECT on_id, job_id FROM holdfast.dependencies WHERE on_id {in_ids} ORDER BY on_id, job_id LIMIT :limit;

-- name: count_dependencies_left_out
SELECT count(DISTINCT on_id) FROM holdfast.dependencies WHERE job_id {in_ids} AND NOT on_id {in_shown};

-- name: count_dependents_left_out
SELECT count(DISTINCT job_id) FROM holdfast.dependencies WHERE on_id {in_ids} AND NOT job_id {in_shown};

-- name: job_heads
SELECT j.id, j.queue, j.kind, j.status FROM {wanted_jobs};
