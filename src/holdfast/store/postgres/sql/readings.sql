-- The timeline of a job. Its heartbeats are read with few columns: there may be thousands.

-- The claims of the job. Earlier ones are found by the events that ended them.

-- part: claims_of_job
(
    SELECT claim_pos AS pos FROM holdfast.jobs WHERE id = %(job_id)s AND claim_pos IS NOT NULL
    UNION SELECT claim_pos FROM holdfast.event_rows WHERE job_id = %(job_id)s AND claim_pos IS NOT NULL
);

-- name: timeline_events
SELECT e.rev, e.type, e.received_at, e.actor, e.attempt, e.to_status, e.reason, e.policy_id,
    CASE WHEN e.type IN ('requeued', 'unblocked', 'rescheduled', 'postponed') THEN e.payload END AS payload
FROM holdfast.event_rows e WHERE e.job_id = %(job_id)s AND e.type <> 'heartbeat'
UNION ALL
SELECT coalesce(b.revs[i.n], b.rev) + step.n, CASE step.n WHEN 1 THEN 'started' ELSE b.type END,
    coalesce(b.times[i.n], b.received_at), b.actor, coalesce(b.attempts[i.n], b.attempt),
    CASE step.n WHEN 1 THEN 'running' ELSE b.to_status END, CASE step.n WHEN 0 THEN b.reason END,
    CASE step.n WHEN 0 THEN coalesce(b.policy_ids[i.n], b.policy_id) END, NULL
FROM (
    SELECT enqueued_pos AS pos FROM holdfast.jobs WHERE id = %(job_id)s
    UNION ALL SELECT c.pos FROM {claims_of_job} AS c
    UNION ALL SELECT l.pos FROM {claims_of_job} AS c
        CROSS JOIN LATERAL (SELECT pos, type FROM holdfast.event_batches WHERE claim_pos = c.pos OFFSET 0) AS l
        WHERE l.type <> 'heartbeat'
) AS place
CROSS JOIN LATERAL (SELECT * FROM holdfast.event_batches WHERE pos = place.pos OFFSET 0) AS b
CROSS JOIN LATERAL (SELECT array_position(b.jobs, %(job_id)s::bigint)) AS i (n)
CROSS JOIN (VALUES (0), (1)) AS step (n)
WHERE i.n IS NOT NULL AND step.n <= b.starts::integer
ORDER BY 1;

-- Times are numbers, in microseconds since 1970: the driver reads numbers faster.

-- name: timeline_beats
SELECT e.rev, round(date_part('epoch', e.received_at) * 1000000)::bigint AS at, e.to_status = 'stalled' AS is_stalled, e.reason,
    substr(e.payload, 1, %(prefix)s) AS payload
FROM holdfast.event_rows e WHERE e.job_id = %(job_id)s AND e.type = 'heartbeat'
UNION ALL
SELECT coalesce(b.revs[i.n], b.rev), round(date_part('epoch', coalesce(b.times[i.n], b.received_at)) * 1000000)::bigint, false, NULL,
    NULL
FROM {claims_of_job} AS c
CROSS JOIN LATERAL (
    SELECT type, rev, received_at, jobs, revs, times FROM holdfast.event_batches WHERE claim_pos = c.pos OFFSET 0) AS b
CROSS JOIN LATERAL (SELECT array_position(b.jobs, %(job_id)s::bigint)) AS i (n)
WHERE b.type = 'heartbeat' AND i.n IS NOT NULL
ORDER BY 1;
