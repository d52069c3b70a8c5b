-- Events.

-- name: insert_event
INSERT INTO holdfast.event_rows (
    pos, job_id, rev, type, received_at, at, claim_pos, actor, attempt, from_status, to_status, reason, request_id, cause,
    payload, policy_id, key_id, signature, statement)
VALUES (
    :pos, :job_id, :rev, :type, :received_at, :at, :claim_pos, :actor, :attempt, :from_status, :to_status, :reason, :request_id,
    :cause, :payload, :policy_id, :key_id, :signature, :statement);

-- name: find_event
SELECT {event_columns} FROM {job_events} e
WHERE e.request_id = :request_id ORDER BY e.rev DESC LIMIT 1;

-- name: events
SELECT {event_columns} FROM {events_between} e
WHERE {event_filter}
ORDER BY e.pos;

-- name: events_of_jobs
SELECT {event_columns} FROM {job_events} e
WHERE e.pos > :after AND (CAST(:rev_max AS integer) IS NULL OR e.rev <= CAST(:rev_max AS integer))
  AND {event_filter}
ORDER BY e.pos LIMIT :limit;
