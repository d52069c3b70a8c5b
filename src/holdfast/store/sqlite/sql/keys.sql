-- name: key_log
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast_key_log ORDER BY pos;

-- name: keys_stand
SELECT coalesce(max(pos), 0) FROM holdfast_key_log;

-- Positions are drawn from the sequence of the events table. It does not exist before the first event.

-- name: begin_positions
INSERT INTO sqlite_sequence (name, seq)
SELECT 'holdfast_events', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'holdfast_events');

-- name: draw_pos
UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'holdfast_events' RETURNING seq;

-- name: add_key_change
INSERT INTO holdfast_key_log (pos, change, key_id, role, name, public, at, by, signer, signature)
VALUES (:pos, :change, :key_id, :role, :name, :public, :at, :by, :signer, :signature);
