-- The positions of sinks.

-- name: sinks
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at, of_heads FROM holdfast.sinks ORDER BY name;

-- name: add_sink
INSERT INTO holdfast.sinks (name, of_heads, pos, updated_at) VALUES (:name, :of_heads, :pos, {now}) ON CONFLICT (name) DO NOTHING;

-- Changes nothing if another process has moved the sink from its position.

-- name: save_sink
UPDATE holdfast.sinks
SET pos = :pos, failures = :failures, retry_at = :retry_at, dead_at = :dead_at, last_error = :last_error, updated_at = {now}
WHERE name = :name AND pos = :from_pos
RETURNING 1;

-- name: drop_sink
DELETE FROM holdfast.sinks WHERE name = :name RETURNING 1;
