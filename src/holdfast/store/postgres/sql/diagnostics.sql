-- Queries for `explain`, `doctor` and lists of dead letters.

-- name: newest_replays
SELECT replay_of, max(id) FROM holdfast.jobs
WHERE replay_of {in_ids} AND replay_of IS NOT NULL GROUP BY replay_of;

-- Those of these jobs that have been replayed: by a replay that has neither failed nor been cancelled, or by a replay of one that
-- has. With the newest of those that count.

-- name: replayed
WITH RECURSIVE line(letter, id, status) AS (
    SELECT j.replay_of, j.id, j.status FROM holdfast.jobs j
    WHERE j.replay_of {in_ids} AND j.replay_of IS NOT NULL
    UNION
    SELECT line.letter, j.id, j.status FROM line
    JOIN holdfast.jobs j ON j.replay_of = line.id AND j.replay_of IS NOT NULL
    WHERE line.status IN ('failed', 'cancelled')
)
SELECT letter, max(id) FROM line WHERE status NOT IN ('failed', 'cancelled') GROUP BY letter;

-- Failed jobs that are not discarded and have no replay, except cancelled ones.

-- name: failed_left
SELECT count(*) FROM (
    SELECT FROM holdfast.jobs j
    WHERE j.ended = 'failed'
      AND {not_discarded}
      AND NOT EXISTS (
        SELECT FROM holdfast.jobs r WHERE r.replay_of = j.id AND r.replay_of IS NOT NULL AND r.status <> 'cancelled')
    LIMIT %(limit)s) AS found;

-- Jobs that wait for one that failed, was cancelled or was dead-lettered.

-- name: count_waiting_for_failed
SELECT count(*) FROM (
    SELECT FROM holdfast.jobs w
    WHERE w.waits_for > 0 AND EXISTS (
        SELECT FROM holdfast.dependencies d JOIN holdfast.jobs o ON o.id = d.on_id
        WHERE d.job_id = w.id AND o.status IN ('failed', 'cancelled', 'dead_lettered'))
    LIMIT %(limit)s) AS found;

-- name: ready
SELECT queue, kind, count(*) AS jobs, min(greatest(available_at, created_at)) AS since FROM holdfast.queued_jobs
WHERE available_at <= coalesce(%(now_at)s::timestamptz, (SELECT clock_timestamp()))
GROUP BY queue, kind ORDER BY 4, queue, kind LIMIT %(limit)s;

-- The same without the jobs of some routes.

-- name: ready_elsewhere
SELECT queue, kind, count(*) AS jobs, min(greatest(available_at, created_at)) AS since FROM holdfast.queued_jobs
WHERE available_at <= coalesce(%(now_at)s::timestamptz, (SELECT clock_timestamp()))
  AND (subqueue IS NULL OR subqueue NOT IN (SELECT s.id FROM holdfast.subqueues s WHERE s.route {in_ids}))
GROUP BY queue, kind ORDER BY 4, queue, kind LIMIT %(limit)s;

-- The connections to databases, from a view that every account may read. Some connections are reserved for superusers and, since
-- PostgreSQL 16, for the role pg_use_reserved_connections.

-- name: vitals
SELECT current_setting('server_version'), (SELECT max(version) FROM holdfast.schema_version),
    pg_snapshot_xmax(s)::text::bigint - pg_snapshot_xmin(s)::text::bigint,
    pg_is_in_recovery(), (SELECT sum(numbackends)::int FROM pg_stat_database),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0),
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')
FROM pg_current_snapshot() AS s;

-- The oldest open transaction on the server except this one, and the oldest one that writes.
-- Without the role pg_read_all_stats, transactions of other accounts have no age and are not listed.

-- name: transactions
SELECT DISTINCT ON (writes) writes, who, (extract(epoch FROM clock_timestamp() - began) * 1000000)::bigint
FROM (
    SELECT backend_xid IS NOT NULL AS writes, xact_start AS began,
        'process ' || pid || ' of ' || coalesce(usename, '?') || coalesce(' (' || nullif(application_name, '') || ')', '')
            || coalesce(', ' || state, '') AS who
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
      AND backend_type = 'client backend'
    UNION ALL
    SELECT true, prepared, 'prepared transaction ' || gid || ' of ' || owner FROM pg_prepared_xacts
) AS opened
ORDER BY writes, began;

-- Held and stalled jobs that other transactions have locked. A row locker's transaction id is the row's xmax. A row that
-- several transactions have locked has another xmax and is not listed.

-- name: locked_jobs
SELECT j.id, 'process ' || a.pid || ' of ' || coalesce(a.usename, '?') || coalesce(' (' || nullif(a.application_name, '') || ')', '')
    || coalesce(', ' || a.state, ''), (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint
FROM holdfast.active_jobs h JOIN holdfast.jobs j ON j.id = h.id
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = j.xmax AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE a.xact_start IS NOT NULL
ORDER BY a.xact_start, j.id
LIMIT 5;

-- Claimable jobs among the first ones of every priority of every queue, by index lookups only.

-- name: first_ready
WITH RECURSIVE {clock}, named (queue) AS (
    (SELECT queue FROM holdfast.queued_jobs ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT n.queue FROM holdfast.queued_jobs n WHERE n.queue > named.queue ORDER BY n.queue LIMIT 1)
    FROM named WHERE named.queue IS NOT NULL
),
wanted (queue) AS MATERIALIZED (
    SELECT queue FROM named WHERE queue IS NOT NULL LIMIT %(limit)s
),
places (queue, rank) AS (
    SELECT w.queue, (SELECT -n.priority FROM holdfast.queued_jobs n WHERE n.queue = w.queue ORDER BY -n.priority LIMIT 1)
    FROM wanted w
    UNION ALL
    SELECT p.queue, (SELECT -n.priority FROM holdfast.queued_jobs n WHERE n.queue = p.queue AND -n.priority > p.rank
                     ORDER BY -n.priority LIMIT 1)
    FROM places p WHERE p.rank IS NOT NULL
),
heads (queue, rank) AS MATERIALIZED (
    SELECT queue, rank FROM places WHERE rank IS NOT NULL LIMIT 2 * %(limit)s
)
SELECT j.queue, j.kind, count(*) AS jobs, min(greatest(j.available_at, j.created_at)) AS since
FROM heads p
CROSS JOIN LATERAL (
    (SELECT n.queue, n.kind, n.available_at, n.created_at FROM holdfast.jobs n
     WHERE n.queued AND n.subqueue IS NULL AND n.queue = p.queue AND -n.priority = p.rank
       AND n.available_at <= (SELECT at FROM clock)
     ORDER BY n.available_at, n.id LIMIT %(each)s)
    UNION ALL
    (SELECT n.queue, n.kind, n.available_at, n.created_at FROM holdfast.jobs n
     WHERE n.queued AND n.subqueue IS NOT NULL AND n.queue = p.queue AND -n.priority = p.rank
       AND n.available_at <= (SELECT at FROM clock)
     ORDER BY n.subqueue, n.available_at, n.id LIMIT %(each)s)) AS j
GROUP BY j.queue, j.kind ORDER BY 4, j.queue, j.kind LIMIT %(limit)s;

-- name: event_from
SELECT e.pos, e.received_at AS at FROM (
    (SELECT pos, received_at FROM holdfast.event_rows WHERE pos >= %(pos)s ORDER BY pos LIMIT 1)
    UNION ALL
    (SELECT greatest(pos, %(pos)s), received_at FROM holdfast.event_batches
     WHERE pos > %(pos)s - 2048 AND pos + size > %(pos)s ORDER BY pos LIMIT 1)
) AS e ORDER BY e.pos LIMIT 1;

-- The number of rows is estimated like in the planner: rows per page at the last analysis, times the current number of pages.
-- A batch counts as many events as the newest ones have on average.

-- name: size
SELECT (SELECT sum(
        CASE WHEN e.relpages > 0 AND e.reltuples >= 0
            THEN e.reltuples / e.relpages * (pg_relation_size(e.oid) / current_setting('block_size')::bigint) END
        * CASE WHEN e.relname = 'event_rows' THEN 1 ELSE (
            SELECT avg(b.size) FROM (SELECT size FROM holdfast.event_batches ORDER BY pos DESC LIMIT 1000) AS b) END)::bigint
     FROM pg_class e WHERE e.oid IN ('holdfast.event_rows'::regclass, 'holdfast.event_batches'::regclass)),
    (SELECT sum(pg_total_relation_size(t.oid))::bigint FROM pg_class t
     WHERE t.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'holdfast.jobs'::regclass) AND t.relkind = 'r');
