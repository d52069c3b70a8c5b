-- The sealed log.

-- name: leaf_events
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM holdfast.events_between(%(after)s, %(until)s) e ORDER BY e.pos;

-- name: leaf_events_of_job
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement
FROM holdfast.job_events(%(jobs)s::bigint[]) e ORDER BY e.rev;

-- name: without_first_event
SELECT j.id FROM holdfast.jobs j
WHERE j.id = ANY (%(ids)s::bigint[])
  AND j.id NOT IN (
    SELECT unnest(b.jobs) FROM holdfast.event_batches b
    WHERE b.pos IN (SELECT e.enqueued_pos FROM holdfast.jobs e WHERE e.id = ANY (%(ids)s::bigint[])))
  AND NOT EXISTS (SELECT FROM holdfast.event_rows e WHERE e.job_id = j.id AND e.rev = 1);

-- name: leaf_keys
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast.key_log
WHERE pos > %(after)s AND pos <= %(until)s ORDER BY pos;

-- name: tile
SELECT hashes, positions, last_pos FROM holdfast.tiles WHERE level = %(level)s AND number = %(number)s;

-- name: tile_of_pos
SELECT number, positions FROM holdfast.tiles WHERE level = 0 AND last_pos >= %(pos)s ORDER BY last_pos LIMIT 1;

-- name: put_tile
INSERT INTO holdfast.tiles (level, number, hashes, positions, last_pos)
VALUES (%(level)s, %(number)s, %(hashes)s, %(positions)s, %(last_pos)s)
ON CONFLICT (level, number) DO UPDATE
SET hashes = excluded.hashes, positions = excluded.positions, last_pos = excluded.last_pos;

-- name: last_head
SELECT size, pos, root, note, at FROM holdfast.heads ORDER BY size DESC LIMIT 1;

-- name: sealed_pos
SELECT pos FROM holdfast.heads ORDER BY size DESC LIMIT 1;

-- name: heads
SELECT size, pos, root, note, at FROM holdfast.heads WHERE size > %(after)s ORDER BY size LIMIT %(limit)s;

-- name: add_head
INSERT INTO holdfast.heads (size, pos, root, note, at)
VALUES (%(size)s, %(pos)s, %(root)s, %(note)s, coalesce(%(now_at)s::timestamptz, clock_timestamp()));

-- name: lock_seal
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.seal', 0));
