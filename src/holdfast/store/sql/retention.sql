-- Deletion of old jobs.

-- A job with undo steps left is kept, and so is its undo job: if it were deleted, it would be created again. A job with a window
-- is kept until the window is over: its row has the key.

-- Jobs by id, with these columns: it did not succeed; it failed or was dead-lettered and is not discarded; it ended before the
-- first time; it ended before the second time; it may be deleted if so; the existing failed job that it replays; it is too new
-- to have ended before either time.

-- A statement may record several batches. The first position of all is the `last_pos` of each of its jobs, and a seal may end
-- between two of them.

-- name: walk_jobs
SELECT j.id, j.status <> 'succeeded' AS is_bad,
    j.status IN ('failed', 'dead_lettered') AND {not_discarded} AS is_failure,
    j.finished_at < :before_at AS by_jobs, j.finished_at < :failed_at AS by_failed,
    j.status IN ('succeeded', 'failed', 'cancelled', 'dead_lettered')
        AND (j.finished_at < :before_at OR j.finished_at < :failed_at)
        AND j.undo_owed = 0 AND NOT (j.kind = CAST(:undo_kind AS text) AND EXISTS (
            SELECT 1 FROM holdfast.jobs o WHERE o.undo_owed > 0 AND o.finished_at IS NOT NULL
              AND CAST(:undo_kind AS text) || '/' || o.id = j.dedupe_key))
        AND (j.key_until IS NULL OR j.key_until <= {now})
        AND j.last_pos <= :sealed
        AND NOT EXISTS (SELECT 1 FROM holdfast.event_batches b WHERE b.claim_pos = j.claim_pos AND b.pos > :sealed)
        AND NOT EXISTS (SELECT 1 FROM holdfast.event_rows e WHERE e.job_id = j.id AND e.pos > :sealed) AS may_go,
    (SELECT CASE WHEN o.status IN ('failed', 'dead_lettered') THEN o.id END FROM holdfast.jobs o
     WHERE o.id = j.replay_of AND j.status <> 'cancelled') AS replayed,
    j.created_at >= :new_at AS is_new
FROM holdfast.jobs j WHERE j.id > :after ORDER BY j.id LIMIT :limit;

-- name: delete_events
DELETE FROM holdfast.event_rows WHERE job_id {in_ids} RETURNING pos;

-- name: delete_jobs
DELETE FROM holdfast.jobs WHERE id {in_ids};
