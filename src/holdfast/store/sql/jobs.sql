-- Jobs: lookups and lists.

-- name: live_replay
SELECT id FROM holdfast.jobs
WHERE replay_of = :job_id AND replay_of IS NOT NULL AND status IN ('queued', 'claimed', 'running', 'stalled')
ORDER BY id LIMIT 1;

-- name: checkpoints
SELECT j.id, e.payload
FROM {wanted_jobs}
JOIN holdfast.event_rows e ON e.job_id = j.id AND e.rev = j.checkpoint_rev;

-- A key belongs to a queue, so the index is searched once for each queue that has keys.

-- name: jobs_of_key
WITH RECURSIVE names(queue) AS (
    SELECT min(j.queue) FROM holdfast.jobs j WHERE j.live_key IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM holdfast.jobs j WHERE j.live_key IS NOT NULL AND j.queue > names.queue)
    FROM names WHERE names.queue IS NOT NULL
)
SELECT j.id FROM names CROSS JOIN holdfast.jobs j
WHERE j.queue = names.queue AND j.live_key = :key AND j.live_key IS NOT NULL ORDER BY j.id LIMIT 10000;

-- name: jobs_of_correlation
SELECT id FROM holdfast.jobs WHERE correlation_id = :correlation_id AND correlation_id IS NOT NULL ORDER BY id LIMIT 10000;

-- name: uncorrelated
SELECT id FROM holdfast.jobs WHERE id = :id AND correlation_id IS NULL;

-- name: list_jobs
SELECT id FROM holdfast.jobs
WHERE id > :after AND {status_filter} AND {queue_filter} AND {link_filter} AND {holder_filter}
ORDER BY id LIMIT :limit;

-- name: list_jobs_newest
SELECT id FROM holdfast.jobs
WHERE id < :after AND {status_filter} AND {queue_filter} AND {link_filter} AND {holder_filter}
ORDER BY id DESC LIMIT :limit;

-- name: list_active
SELECT id FROM holdfast.active_jobs
WHERE id > :after AND {status_filter} AND {queue_filter} AND {holder_filter}
ORDER BY id LIMIT :limit;

-- name: list_active_newest
SELECT id FROM holdfast.active_jobs
WHERE id < :after AND {status_filter} AND {queue_filter} AND {holder_filter}
ORDER BY id DESC LIMIT :limit;

-- Lists by time. A place is the time and the id of the last job of the page before.

-- name: list_queued
SELECT id FROM holdfast.jobs WHERE queued AND subqueue IS NULL AND {queue_filter}
UNION ALL
SELECT id FROM holdfast.jobs WHERE queued AND subqueue IS NOT NULL AND {queue_filter}
LIMIT :limit;

-- name: sort_updated
SELECT j.id, j.updated_at FROM {wanted_jobs}
WHERE CAST(:place_at AS timestamptz) IS NULL OR (j.updated_at, j.id) < (CAST(:place_at AS timestamptz), :place_id)
ORDER BY j.updated_at DESC, j.id DESC LIMIT :limit;

-- name: sort_finished
SELECT j.id, j.finished_at FROM {wanted_jobs}
WHERE CAST(:place_at AS timestamptz) IS NULL OR (j.finished_at, j.id) < (CAST(:place_at AS timestamptz), :place_id)
ORDER BY j.finished_at DESC, j.id DESC LIMIT :limit;

-- name: sort_available
SELECT j.id, j.available_at FROM {wanted_jobs}
WHERE CAST(:place_at AS timestamptz) IS NULL OR (j.available_at, j.id) > (CAST(:place_at AS timestamptz), :place_id)
ORDER BY j.available_at, j.id LIMIT :limit;
