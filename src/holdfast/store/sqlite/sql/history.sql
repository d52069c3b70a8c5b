-- Totals and history.

-- The buckets of a wait and of a run: `edge_of`, which each connection gets as a function.

-- part: wait_bucket
CASE WHEN e.wait_us IS NOT NULL THEN holdfast_edge_of(e.wait_us) END;

-- part: run_bucket
CASE WHEN e.run_us IS NOT NULL THEN holdfast_edge_of(e.run_us) END;

-- The events after :after and up to :until that totals and history count. A page never ends within a batch. A wait is known
-- while the job still has the claim that ended it: available_at has not been changed by a requeue since. A stall for a transient
-- error is `retried`.

-- part: counted_events
(
    SELECT e.received_at / 60000000 AS minute, e.job_id, e.rev, j.queue, j.kind,
        CASE WHEN e.type = 'stalled' AND e.reason = 'TRANSIENT_ERROR' THEN 'retried' ELSE e.type END AS type,
        e.from_status, e.to_status, 0 AS starts,
        CASE WHEN e.type = 'claimed' AND e.from_status = 'queued' AND j.claim_pos = e.pos AND j.available_at <= e.received_at
            THEN max(0, e.received_at - max(j.available_at, j.created_at)) END AS wait_us,
        CASE WHEN e.type IN ('succeeded', 'failed', 'cancelled', 'dead_lettered') AND e.from_status IN ('running', 'stalled')
            THEN max(0, e.received_at - j.started_at) END AS run_us
    FROM holdfast_event_rows e CROSS JOIN holdfast_jobs j ON j.id = e.job_id
    WHERE e.pos > :after AND e.pos <= :until AND e.type <> 'heartbeat'
    UNION ALL
    SELECT coalesce(b.times ->> i.key, b.received_at) / 60000000, i.value, coalesce(b.revs ->> i.key, b.rev), j.queue, j.kind, b.type, b.from_status, b.to_status, b.starts,
        CASE WHEN b.type = 'claimed' AND b.from_status = 'queued' AND j.claim_pos = b.pos AND j.available_at <= coalesce(b.times ->> i.key, b.received_at)
            THEN max(0, coalesce(b.times ->> i.key, b.received_at) - max(j.available_at, j.created_at)) END,
        CASE WHEN b.type = 'succeeded' THEN max(0, coalesce(b.times ->> i.key, b.received_at) - j.started_at) END
    FROM holdfast_event_batches b
    CROSS JOIN json_each(b.jobs) i
    CROSS JOIN holdfast_jobs j ON j.id = i.value
    WHERE b.pos > :after AND b.pos <= :until AND b.type <> 'heartbeat'
);

-- All events but those of moved jobs, grouped.

-- name: tally_events
SELECT minute, queue, kind, type, from_status, to_status, starts, wait, run,
    coalesce(sum(wait_us), 0) AS wait_us, coalesce(sum(run_us), 0) AS run_us, count(*) AS n
FROM (
    SELECT minute, queue, kind, type, from_status, to_status, starts, wait_us, run_us, {wait_bucket} AS wait, {run_bucket} AS run
    FROM {counted_events} e
    WHERE NOT :has_moves
       OR NOT EXISTS (SELECT 1 FROM holdfast_event_rows m WHERE m.job_id = e.job_id AND m.type = 'moved')
)
GROUP BY minute, queue, kind, type, from_status, to_status, starts, wait, run;

-- name: tally_heartbeats
SELECT minute, sum(n) FROM (
    SELECT received_at / 60000000 AS minute, count(*) AS n FROM holdfast_event_rows
    WHERE pos > :after AND pos <= :until AND type = 'heartbeat' GROUP BY 1
    UNION ALL
    SELECT received_at / 60000000, sum(size) FROM holdfast_event_batches
    WHERE pos > :after AND pos <= :until AND type = 'heartbeat' GROUP BY 1
) GROUP BY minute;

-- name: lock_progress
SELECT pos, at, since_at, deletions FROM holdfast_history_progress WHERE id = 1;

-- name: try_lock_progress
SELECT pos, at, since_at, deletions FROM holdfast_history_progress WHERE id = 1;

-- name: add_totals
INSERT INTO holdfast_totals (queue, kind, status, n) VALUES (:queue, :kind, :status, :n)
ON CONFLICT (queue, kind, status) DO UPDATE SET n = n + excluded.n;

-- name: history_at
SELECT scope, name, at, body FROM holdfast_history
WHERE step = :step AND at IN (SELECT value FROM json_each(:times));

-- name: save_history
INSERT INTO holdfast_history (step, scope, name, at, body) VALUES (:step, :scope, :name, :slot_at, :body)
ON CONFLICT (step, scope, name, at) DO UPDATE SET body = excluded.body;

-- name: save_history_names
INSERT INTO holdfast_history_names (scope, name, last_at) VALUES (:scope, :name, :last_at)
ON CONFLICT (scope, name) DO UPDATE SET last_at = max(last_at, excluded.last_at);

-- name: delete_history
DELETE FROM holdfast_history WHERE (step, scope, name, at) IN (
    SELECT step, scope, name, at FROM holdfast_history WHERE step = :step AND at < :before_at LIMIT :limit)
RETURNING 1;
