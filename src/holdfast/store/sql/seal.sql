-- The sealed log.

-- name: leaf_events
SELECT {event_columns} FROM {events_between} e ORDER BY e.pos;

-- name: leaf_events_of_job
SELECT {event_columns} FROM {job_events} e ORDER BY e.rev;

-- name: leaf_keys
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast.key_log
WHERE pos > :after AND pos <= :until ORDER BY pos;

-- name: tile
SELECT level, number, hashes, positions, last_pos FROM holdfast.tiles WHERE level = :level AND number = :number;

-- name: tile_of_pos
SELECT number, positions FROM holdfast.tiles WHERE level = 0 AND last_pos >= :pos ORDER BY last_pos LIMIT 1;

-- name: put_tile
INSERT INTO holdfast.tiles (level, number, hashes, positions, last_pos)
VALUES (:level, :number, :hashes, :positions, :last_pos)
ON CONFLICT (level, number) DO UPDATE
SET hashes = excluded.hashes, positions = excluded.positions, last_pos = excluded.last_pos;

-- name: last_head
SELECT size, pos, root, note, at FROM holdfast.heads ORDER BY size DESC LIMIT 1;

-- name: sealed_pos
SELECT pos FROM holdfast.heads ORDER BY size DESC LIMIT 1;

-- name: heads
SELECT size, pos, root, note, at FROM holdfast.heads WHERE size > :after ORDER BY size LIMIT :limit;

-- name: add_head
INSERT INTO holdfast.heads (size, pos, root, note, at) VALUES (:size, :pos, :root, :note, {now});
