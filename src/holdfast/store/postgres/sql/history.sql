-- Totals and history.

-- The buckets of a wait and of a run.

-- part: wait_bucket
holdfast.edge_of(e.wait_us, %(edges)s::bigint[]);

-- part: run_bucket
holdfast.edge_of(e.run_us, %(edges)s::bigint[]);

-- The events after %(after)s and up to %(until)s that totals and history count. A page never ends within a batch. A wait is known
-- while the job still has the claim that ended it: available_at has not been changed by a requeue since. A stall for a transient
-- error is `retried`.

-- part: counted_events
(
    SELECT floor(date_part('epoch', e.received_at) / 60)::bigint AS minute, e.job_id, e.rev, j.queue, j.kind,
        CASE WHEN e.type = 'stalled' AND e.reason = 'TRANSIENT_ERROR' THEN 'retried' ELSE e.type END AS type,
        e.from_status, e.to_status, false AS starts, true AS is_apart,
        CASE WHEN e.type = 'claimed' AND e.from_status = 'queued' AND j.claim_pos = e.pos AND j.available_at <= e.received_at
            THEN greatest(0, extract(epoch FROM e.received_at - greatest(j.available_at, j.created_at)) * 1000000)::bigint END AS wait_us,
        CASE WHEN e.type IN ('succeeded', 'failed', 'cancelled', 'dead_lettered') AND e.from_status IN ('running', 'stalled')
            THEN greatest(0, extract(epoch FROM e.received_at - j.started_at) * 1000000)::bigint END AS run_us
    FROM holdfast.event_rows e
    CROSS JOIN LATERAL (
        SELECT queue, kind, started_at, available_at, created_at, claim_pos FROM holdfast.jobs WHERE id = e.job_id OFFSET 0) AS j
    WHERE e.pos > %(after)s AND e.pos <= %(until)s AND e.type <> 'heartbeat'
    UNION ALL
    SELECT floor(date_part('epoch', t.at) / 60)::bigint, i.job_id, coalesce(i.rev, b.rev), j.queue, j.kind, b.type, b.from_status,
        b.to_status, b.starts, b.times IS NOT NULL,
        CASE WHEN b.type = 'claimed' AND b.from_status = 'queued' AND j.claim_pos = b.pos AND j.available_at <= t.at
            THEN greatest(0, extract(epoch FROM t.at - greatest(j.available_at, j.created_at)) * 1000000)::bigint END,
        CASE WHEN b.type = 'succeeded' THEN greatest(0, extract(epoch FROM t.at - j.started_at) * 1000000)::bigint END
    FROM holdfast.event_batches b
    CROSS JOIN LATERAL unnest(b.jobs, b.revs, b.times) AS i (job_id, rev, received_at)
    CROSS JOIN LATERAL (SELECT coalesce(i.received_at, b.received_at)) AS t (at)
    CROSS JOIN LATERAL (
        SELECT queue, kind, started_at, available_at, created_at, claim_pos FROM holdfast.jobs WHERE id = i.job_id OFFSET 0) AS j
    WHERE b.pos > %(after)s AND b.pos <= %(until)s AND b.type <> 'heartbeat'
);

-- All events but those of moved jobs, grouped. The jobs of a batch are looked up together: most batches have one time for all of
-- their jobs. Sorting the groups of one batch is faster than sorting all events.

-- name: tally_events
SELECT minute, queue, kind, type, from_status, to_status, starts, wait, run,
    coalesce(sum(wait_us), 0)::bigint AS wait_us, coalesce(sum(run_us), 0)::bigint AS run_us, sum(n)::bigint AS n
FROM (
    SELECT minute, queue, kind, type, from_status, to_status, starts, {wait_bucket} AS wait, {run_bucket} AS run, wait_us, run_us,
        1 AS n
    FROM {counted_events} e
    WHERE e.is_apart AND {is_unmoved}
    UNION ALL
    SELECT floor(date_part('epoch', b.received_at) / 60)::bigint, g.queue, g.kind, b.type, b.from_status, b.to_status, b.starts,
        g.wait, g.run, g.wait_us, g.run_us, g.n
    FROM holdfast.event_batches b
    CROSS JOIN LATERAL (
        SELECT e.queue, e.kind, {wait_bucket} AS wait, {run_bucket} AS run, sum(e.wait_us) AS wait_us, sum(e.run_us) AS run_us,
            count(*) AS n
        FROM (
            SELECT j.id AS job_id, j.queue, j.kind,
                CASE WHEN b.type = 'claimed' AND b.from_status = 'queued' AND j.claim_pos = b.pos AND j.available_at <= b.received_at
                    THEN greatest(0, extract(epoch FROM b.received_at - greatest(j.available_at, j.created_at)) * 1000000)::bigint END AS wait_us,
                CASE WHEN b.type = 'succeeded' THEN greatest(0, extract(epoch FROM b.received_at - j.started_at) * 1000000)::bigint END AS run_us
            FROM holdfast.jobs j WHERE j.id = ANY (b.jobs) OFFSET 0
        ) AS e
        WHERE {is_unmoved}
        GROUP BY 1, 2, 3, 4
    ) AS g
    WHERE b.pos > %(after)s AND b.pos <= %(until)s AND b.type <> 'heartbeat' AND b.times IS NULL
) AS counted
GROUP BY minute, queue, kind, type, from_status, to_status, starts, wait, run;

-- part: is_unmoved
(NOT %(has_moves)s OR NOT EXISTS (SELECT FROM holdfast.event_rows m WHERE m.job_id = e.job_id AND m.type = 'moved'));

-- name: tally_heartbeats
SELECT minute, sum(n)::bigint FROM (
    SELECT floor(date_part('epoch', received_at) / 60)::bigint AS minute, count(*) AS n FROM holdfast.event_rows
    WHERE pos > %(after)s AND pos <= %(until)s AND type = 'heartbeat' GROUP BY 1
    UNION ALL
    SELECT floor(date_part('epoch', received_at) / 60)::bigint, sum(size) FROM holdfast.event_batches
    WHERE pos > %(after)s AND pos <= %(until)s AND type = 'heartbeat' GROUP BY 1
) AS beats GROUP BY minute;

-- The lock lasts until the transaction ends. It keeps events from being counted and deleted at the same time.

-- name: lock_progress
SELECT pos, at, since_at, deletions FROM holdfast.history_progress WHERE id = 1 FOR UPDATE;

-- name: try_lock_progress
SELECT pos, at, since_at, deletions FROM holdfast.history_progress WHERE id = 1 FOR UPDATE SKIP LOCKED;

-- name: add_totals
INSERT INTO holdfast.totals AS t (queue, kind, status, n)
SELECT * FROM unnest(%(queue)s::text[], %(kind)s::text[], %(status)s::text[], %(n)s::bigint[])
ON CONFLICT (queue, kind, status) DO UPDATE SET n = t.n + excluded.n;

-- name: history_at
SELECT scope, name, at, body FROM holdfast.history
WHERE step = %(step)s AND at = ANY (SELECT 'epoch'::timestamptz + unnest(%(times)s::bigint[]) * interval '1 microsecond');

-- name: save_history
INSERT INTO holdfast.history (step, scope, name, at, body)
SELECT * FROM unnest(%(step)s::text[], %(scope)s::text[], %(name)s::text[], %(slot_at)s::timestamptz[], %(body)s::text[])
ON CONFLICT (step, scope, name, at) DO UPDATE SET body = excluded.body;

-- name: save_history_names
INSERT INTO holdfast.history_names AS h (scope, name, last_at)
SELECT * FROM unnest(%(scope)s::text[], %(name)s::text[], %(last_at)s::timestamptz[])
ON CONFLICT (scope, name) DO UPDATE SET last_at = greatest(h.last_at, excluded.last_at);

-- name: delete_history
DELETE FROM holdfast.history WHERE (step, scope, name, at) IN (
    SELECT step, scope, name, at FROM holdfast.history
    WHERE step = %(step)s AND at < %(before_at)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;
