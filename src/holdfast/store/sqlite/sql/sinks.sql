-- name: find_sink
SELECT name, pos, failures, retry_at, dead_at, last_error, updated_at, of_heads FROM holdfast_sinks WHERE name = :name;

-- name: events_after
SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_event_rows WHERE pos > :pos LIMIT :limit)),
    (SELECT coalesce(sum(size), 0) FROM (
        SELECT min(size, pos + size - 1 - :pos) AS size FROM holdfast_event_batches
        WHERE pos > :pos - 2048 AND pos + size - 1 > :pos LIMIT :limit));

-- name: origins
SELECT j.id, j.queue, j.kind, nullif(p.tier, '')
FROM {wanted_jobs} LEFT JOIN holdfast_profiles p ON p.id = j.profile_id;
