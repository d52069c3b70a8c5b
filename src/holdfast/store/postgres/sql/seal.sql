-- The sealed log.

-- name: without_first_event
SELECT j.id FROM holdfast.jobs j
WHERE j.id {in_ids}
  AND j.id NOT IN (
    SELECT unnest(b.jobs) FROM holdfast.event_batches b
    WHERE b.pos IN (SELECT e.enqueued_pos FROM holdfast.jobs e WHERE e.id {in_ids}))
  AND NOT EXISTS (SELECT FROM holdfast.event_rows e WHERE e.job_id = j.id AND e.rev = 1);

-- name: lock_seal
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.seal', 0));
