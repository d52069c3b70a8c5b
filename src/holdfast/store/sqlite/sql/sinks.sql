-- name: sinks
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at FROM holdfast_sinks ORDER BY name;

-- name: find_sink
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at FROM holdfast_sinks WHERE name = :name;

-- name: add_sink
INSERT INTO holdfast_sinks (name, pos, updated_at) VALUES (:name, :pos, :now_at) ON CONFLICT (name) DO NOTHING;

-- Changes nothing if another process has moved the sink from its position.

-- name: save_sink
UPDATE holdfast_sinks
SET pos = :pos, failures = :failures, retry_at = :retry_at, dead_at = :dead_at, last_error = :last_error, updated_at = :now_at
WHERE name = :name AND pos = :from_pos
RETURNING 1;

-- name: drop_sink
DELETE FROM holdfast_sinks WHERE name = :name RETURNING 1;

-- name: events_after
SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_event_rows WHERE pos > :pos LIMIT :limit)),
    (SELECT coalesce(sum(size), 0) FROM (
        SELECT min(size, pos + size - 1 - :pos) AS size FROM holdfast_event_batches
        WHERE pos > :pos - 2048 AND pos + size - 1 > :pos LIMIT :limit));

-- name: origins
SELECT j.id, j.queue, j.kind, nullif(p.tier, '')
FROM json_each(:ids) wanted JOIN holdfast_jobs j ON j.id = wanted.value LEFT JOIN holdfast_profiles p ON p.id = j.profile_id;
