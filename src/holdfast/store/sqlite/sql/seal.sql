-- The sealed log.

-- name: leaf_events
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM {events_between} e ORDER BY e.pos;

-- name: leaf_events_of_job
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM {job_events} e ORDER BY e.rev;

-- name: without_first_event
SELECT j.id FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
WHERE j.id NOT IN (
    SELECT i.value FROM holdfast_event_batches b CROSS JOIN json_each(b.jobs) i
    WHERE b.pos IN (SELECT e.enqueued_pos FROM json_each(:ids) wanted CROSS JOIN holdfast_jobs e ON e.id = wanted.value))
  AND NOT EXISTS (SELECT 1 FROM holdfast_event_rows e WHERE e.job_id = j.id AND e.rev = 1);

-- name: leaf_keys
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast_key_log
WHERE pos > :after AND pos <= :until ORDER BY pos;

-- name: tile
SELECT hashes, positions, last_pos FROM holdfast_tiles WHERE level = :level AND number = :number;

-- name: tile_of_pos
SELECT number, positions FROM holdfast_tiles WHERE level = 0 AND last_pos >= :pos ORDER BY last_pos LIMIT 1;

-- name: put_tile
INSERT INTO holdfast_tiles (level, number, hashes, positions, last_pos) VALUES (:level, :number, :hashes, :positions, :last_pos)
ON CONFLICT (level, number) DO UPDATE
SET hashes = excluded.hashes, positions = excluded.positions, last_pos = excluded.last_pos;

-- name: last_head
SELECT size, pos, root, note, at FROM holdfast_heads ORDER BY size DESC LIMIT 1;

-- name: sealed_pos
SELECT pos FROM holdfast_heads ORDER BY size DESC LIMIT 1;

-- name: heads
SELECT size, pos, root, note, at FROM holdfast_heads WHERE size > :after ORDER BY size LIMIT :limit;

-- name: add_head
INSERT INTO holdfast_heads (size, pos, root, note, at) VALUES (:size, :pos, :root, :note, :now_at);
