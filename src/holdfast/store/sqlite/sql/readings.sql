-- The timeline of a job. Its heartbeats are read with few columns: there may be thousands.

-- The claims of the job :job_id. Earlier ones are found by the events that ended them.

-- part: claims_of_job
(
    SELECT claim_pos AS pos FROM holdfast_jobs WHERE id = :job_id AND claim_pos IS NOT NULL
    UNION SELECT claim_pos FROM holdfast_event_rows WHERE job_id = :job_id AND claim_pos IS NOT NULL
);

-- The place of the job in the list of a batch `b`: the number of commas before it. Few batches need it.

-- part: place_in_batch
(length(substr(b.jobs, 1, instr(replace(replace(b.jobs, '[', ','), ']', ','), ',' || :job_id || ',')))
 - length(replace(substr(b.jobs, 1, instr(replace(replace(b.jobs, '[', ','), ']', ','), ',' || :job_id || ',')), ',', '')));

-- part: is_in_batch
(b.jobs = '[' || :job_id || ']' OR instr(replace(replace(b.jobs, '[', ','), ']', ','), ',' || :job_id || ',') > 0);

-- name: timeline_events
SELECT e.rev, e.type, e.received_at, e.actor, e.attempt, e.to_status, e.reason, e.policy_id,
    CASE WHEN e.type IN ('requeued', 'unblocked', 'rescheduled', 'postponed') THEN e.payload END AS payload
FROM holdfast_event_rows e WHERE e.job_id = :job_id AND e.type <> 'heartbeat'
UNION ALL
SELECT coalesce(b.revs ->> {place_in_batch}, b.rev) + step.n, iif(step.n, 'started', b.type),
    coalesce(b.times ->> {place_in_batch}, b.received_at), b.actor, coalesce(b.attempts ->> {place_in_batch}, b.attempt),
    iif(step.n, 'running', b.to_status), iif(step.n, NULL, b.reason),
    iif(step.n, NULL, coalesce(b.policy_ids ->> {place_in_batch}, b.policy_id)), NULL
FROM (
    SELECT enqueued_pos AS pos FROM holdfast_jobs WHERE id = :job_id
    UNION ALL SELECT pos FROM {claims_of_job}
    UNION ALL SELECT l.pos FROM {claims_of_job} c CROSS JOIN holdfast_event_batches l ON l.claim_pos = c.pos AND l.type <> 'heartbeat'
) place
CROSS JOIN holdfast_event_batches b ON b.pos = place.pos
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= b.starts
WHERE {is_in_batch}
ORDER BY 1;

-- name: timeline_beats
SELECT e.rev, e.received_at AS at, e.to_status = 'stalled' AS is_stalled, e.reason, substr(e.payload, 1, :prefix) AS payload
FROM holdfast_event_rows e WHERE e.job_id = :job_id AND e.type = 'heartbeat'
UNION ALL
SELECT CASE WHEN b.revs IS NULL THEN b.rev ELSE b.revs ->> {place_in_batch} END,
    CASE WHEN b.times IS NULL THEN b.received_at ELSE b.times ->> {place_in_batch} END, 0, NULL, NULL
FROM {claims_of_job} c CROSS JOIN holdfast_event_batches b ON b.claim_pos = c.pos
WHERE b.type = 'heartbeat' AND {is_in_batch}
ORDER BY 1;
