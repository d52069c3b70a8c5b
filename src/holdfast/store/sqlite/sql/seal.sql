-- The sealed log.

-- name: without_first_event
SELECT j.id FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
WHERE j.id NOT IN (
    SELECT i.value FROM holdfast_event_batches b CROSS JOIN json_each(b.jobs) i
    WHERE b.pos IN (SELECT e.enqueued_pos FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs e ON e.id = wanted.value))
  AND NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.job_id = j.id AND e.rev = 1);
