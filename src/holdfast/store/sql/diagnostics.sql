-- Queries for `explain`.

-- name: status_since
SELECT e.received_at FROM {job_events} e
WHERE e.from_status IS NULL OR e.from_status <> e.to_status
ORDER BY e.rev DESC LIMIT 1;
