-- name: sinks
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at FROM holdfast.sinks ORDER BY name;

-- name: find_sink
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at FROM holdfast.sinks WHERE name = %(name)s FOR UPDATE;

-- name: add_sink
INSERT INTO holdfast.sinks (name, pos, updated_at)
VALUES (%(name)s, %(pos)s, coalesce(%(now_at)s::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO NOTHING;

-- Changes nothing if another process has moved the sink from its position.

-- name: save_sink
UPDATE holdfast.sinks
SET pos = %(pos)s, failures = %(failures)s, retry_at = %(retry_at)s, dead_at = %(dead_at)s, last_error = %(last_error)s,
    updated_at = coalesce(%(now_at)s::timestamptz, clock_timestamp())
WHERE name = %(name)s AND pos = %(from_pos)s
RETURNING 1;

-- name: drop_sink
DELETE FROM holdfast.sinks WHERE name = %(name)s RETURNING 1;

-- name: events_after
SELECT (SELECT count(*) FROM (SELECT FROM holdfast.event_rows WHERE pos > %(pos)s LIMIT %(limit)s) AS found),
    (SELECT coalesce(sum(size), 0)::bigint FROM (
        SELECT least(size, pos + size - 1 - %(pos)s) AS size FROM holdfast.event_batches
        WHERE pos > %(pos)s - 2048 AND pos + size - 1 > %(pos)s LIMIT %(limit)s) AS found);

-- name: origins
SELECT j.id, j.queue, j.kind, nullif(p.tier, '')
FROM holdfast.jobs j LEFT JOIN holdfast.profiles p ON p.id = j.profile_id WHERE j.id = ANY (%(ids)s::bigint[]);
