-- Duties, workers, and the time of the next ready job. Each verb is one statement and so one transaction. Those that write set
-- lock_timeout themselves, before they reach a row that may be locked.

-- A duty that expires later than the longest possible time from now was taken while the clock was ahead: it is free. Twice the
-- longest time is allowed, because the clock is read before a wait for the row.

-- name: take_duty
WITH clock AS MATERIALIZED (
    SELECT {now} AS at, set_config('lock_timeout', '100', true)
)
INSERT INTO holdfast.duties AS d (name, holder, expires_at)
SELECT %(name)s, %(holder)s, clock.at + %(ttl_us)s::bigint * interval '1 microsecond' FROM clock
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE d.holder = excluded.holder
   OR d.expires_at < (SELECT at FROM clock)
   OR d.expires_at > (SELECT at FROM clock) + 2 * %(ttl_us_max)s::bigint * interval '1 microsecond'
RETURNING 1;

-- Whether a duty may be taken, whether there is a job for the sweeper, when the duty expires, and since when sweeps have run
-- without a gap. Every worker polls this.

-- name: watch
SELECT {now}, NOT EXISTS (
        SELECT FROM holdfast.duties d
        WHERE d.name = %(name)s AND d.holder <> %(holder)s AND d.expires_at >= {now}
          AND d.expires_at <= {now} + 2 * %(ttl_us_max)s::bigint * interval '1 microsecond'),
    EXISTS (SELECT FROM holdfast.open_claims)
        OR EXISTS (SELECT FROM holdfast.jobs j WHERE j.undo_owed > 0 AND j.finished_at IS NOT NULL)
        OR EXISTS (SELECT FROM holdfast.cursors WHERE name >= 'cascade/' AND name < 'cascade0')
        OR EXISTS (SELECT FROM holdfast.cursors WHERE name >= 'link/' AND name < 'link0')
        OR EXISTS (SELECT FROM holdfast.group_changes),
    (SELECT d.expires_at FROM holdfast.duties d WHERE d.name = %(name)s),
    (SELECT pos FROM holdfast.cursors WHERE name = 'sweeping'),
    (SELECT min(fire_at) FROM holdfast.schedules);

-- name: drop_duty
DELETE FROM holdfast.duties WHERE name = %(name)s AND holder = %(holder)s AND set_config('lock_timeout', '100', true) IS NOT NULL;

-- name: sign_in
WITH clock AS MATERIALIZED (
    SELECT {now} AS at, set_config('lock_timeout', '100', true)
)
INSERT INTO holdfast.workers AS w (name, incarnation, started_at, seen_at, body)
SELECT %(name)s, %(incarnation)s, clock.at, clock.at, coalesce(%(body)s::text, '{}') FROM clock
ON CONFLICT (name, incarnation) DO UPDATE SET seen_at = excluded.seen_at, body = coalesce(%(body)s::text, w.body);

-- name: sign_out
DELETE FROM holdfast.workers
WHERE name = %(name)s AND incarnation = %(incarnation)s AND set_config('lock_timeout', '100', true) IS NOT NULL;

-- name: workers
SELECT w.name, w.incarnation, w.started_at, w.seen_at, w.body, coalesce(h.jobs, 0) AS holding
FROM holdfast.workers w LEFT JOIN (
    SELECT owner, incarnation, count(*) AS jobs FROM holdfast.active_jobs
    WHERE status IN ('claimed', 'running')
    GROUP BY owner, incarnation) AS h ON h.owner = w.name AND h.incarnation = w.incarnation
WHERE %(within_us)s::bigint IS NULL
   OR w.seen_at >= coalesce(%(now_at)s::timestamptz, (SELECT clock_timestamp())) - %(within_us)s::bigint * interval '1 microsecond'
ORDER BY w.seen_at DESC, w.name, w.incarnation LIMIT %(limit)s;

-- name: prune_workers
DELETE FROM holdfast.workers WHERE (name, incarnation) IN (
    SELECT name, incarnation FROM holdfast.workers WHERE seen_at < %(before_at)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: take_schedule
SELECT {schedule_columns} FROM holdfast.schedules WHERE name = %(name)s FOR NO KEY UPDATE SKIP LOCKED;

-- name: ready_queues
SELECT u.name FROM unnest(%(queues)s::text[]) AS u (name)
WHERE (SELECT p.paused_at FROM holdfast.queues p WHERE p.name = u.name) IS NULL AND ((
    SELECT j.id FROM holdfast.jobs j
    WHERE j.queue = u.name AND j.queued AND j.subqueue IS NULL AND j.available_at <= (SELECT {now})
    ORDER BY -j.priority, j.available_at, j.id LIMIT 1) IS NOT NULL
    OR (SELECT p.has_flow AND (
            EXISTS (SELECT FROM holdfast.subqueues s WHERE s.queue = u.name AND (s.is_open OR s.until <= {now}))
            OR EXISTS (SELECT FROM holdfast.subqueue_notes))
        FROM holdfast.queues p WHERE p.name = u.name));

-- name: next_ready
SELECT {now}, (
        SELECT j.available_at FROM holdfast.jobs j
        WHERE j.queue = u.name AND j.queued AND j.subqueue IS NULL AND j.available_at > j.created_at
          AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]))
        ORDER BY j.available_at LIMIT 1), u.name, coalesce(p.has_flow, false)
FROM unnest(%(queues)s::text[]) AS u (name) LEFT JOIN holdfast.queues p ON p.name = u.name
WHERE p.paused_at IS NULL
UNION ALL
SELECT {now}, NULL, NULL, NULL;
