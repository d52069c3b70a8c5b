-- Duties, paused queues, cursors, and supervised runs: one row per name.

-- name: duty
SELECT holder, expires_at FROM holdfast.duties WHERE name = :name;

-- name: paused
SELECT paused_at FROM holdfast.queues WHERE name = :queue;

-- name: set_paused
INSERT INTO holdfast.queues (name, paused_at, paused_by, pause_reason)
VALUES (:queue, :paused_at, :paused_by, :pause_reason)
ON CONFLICT (name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason;

-- name: pauses
SELECT name AS queue, paused_at AS at, paused_by AS by, pause_reason AS reason
FROM holdfast.queues WHERE paused_at IS NOT NULL ORDER BY name;

-- name: cursor
SELECT pos FROM holdfast.cursors WHERE name = :name;

-- name: set_cursor
INSERT INTO holdfast.cursors (name, pos) VALUES (:name, :pos) ON CONFLICT (name) DO UPDATE SET pos = excluded.pos;

-- name: find_run
SELECT name, body, updated_at FROM holdfast.runs WHERE name = :name;

-- name: runs
SELECT name, body, updated_at FROM holdfast.runs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: save_run
INSERT INTO holdfast.runs (name, body, updated_at) VALUES (:name, :body, {now})
ON CONFLICT (name) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
