-- name: find_sink
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at, of_heads FROM holdfast.sinks WHERE name = %(name)s FOR UPDATE;

-- name: events_after
SELECT (SELECT count(*) FROM (SELECT FROM holdfast.event_rows WHERE pos > %(pos)s LIMIT %(limit)s) AS found),
    (SELECT coalesce(sum(size), 0)::bigint FROM (
        SELECT least(size, pos + size - 1 - %(pos)s) AS size FROM holdfast.event_batches
        WHERE pos > %(pos)s - 2048 AND pos + size - 1 > %(pos)s LIMIT %(limit)s) AS found);

-- name: origins
SELECT j.id, j.queue, j.kind, nullif(p.tier, '')
FROM holdfast.jobs j LEFT JOIN holdfast.profiles p ON p.id = j.profile_id WHERE j.id {in_ids};
