-- Duties, workers, and the time of the next ready job. Each verb is one statement.

-- A duty that expires later than the longest possible time from now was taken while the clock was ahead: it is free.

-- name: take_duty
INSERT INTO holdfast_duties (name, holder, expires_at) VALUES (:name, :holder, :now_at + :ttl_us)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE holdfast_duties.holder = excluded.holder
   OR holdfast_duties.expires_at < :now_at OR holdfast_duties.expires_at > :now_at + 2 * :ttl_us_max
RETURNING 1;

-- Whether a duty may be taken, whether there is a job for the sweeper, when the duty expires, and since when sweeps have run
-- without a gap. Every worker polls this.

-- name: watch
SELECT :now_at, NOT EXISTS (
        SELECT 1 FROM holdfast_duties
        WHERE name = :name AND holder <> :holder AND expires_at >= :now_at AND expires_at <= :now_at + 2 * :ttl_us_max),
    EXISTS (SELECT 1 FROM holdfast_open_claims)
        OR EXISTS (SELECT 1 FROM holdfast_jobs WHERE undo_owed > 0 AND finished_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM holdfast_cursors WHERE name >= 'cascade/' AND name < 'cascade0')
        OR EXISTS (SELECT 1 FROM holdfast_cursors WHERE name >= 'link/' AND name < 'link0')
        OR EXISTS (SELECT 1 FROM holdfast_group_changes),
    (SELECT expires_at FROM holdfast_duties WHERE name = :name),
    (SELECT pos FROM holdfast_cursors WHERE name = 'sweeping'),
    (SELECT min(fire_at) FROM holdfast_schedules);

-- name: drop_duty
DELETE FROM holdfast_duties WHERE name = :name AND holder = :holder;

-- name: sign_in
INSERT INTO holdfast_workers (name, incarnation, started_at, seen_at, body)
VALUES (:name, :incarnation, :now_at, :now_at, coalesce(:body, '{}'))
ON CONFLICT (name, incarnation) DO UPDATE SET seen_at = excluded.seen_at, body = coalesce(:body, body);

-- name: sign_out
DELETE FROM holdfast_workers WHERE name = :name AND incarnation = :incarnation;

-- name: workers
SELECT w.name, w.incarnation, w.started_at, w.seen_at, w.body, coalesce(h.jobs, 0) AS holding
FROM holdfast_workers w LEFT JOIN (
    SELECT owner, incarnation, count(*) AS jobs FROM holdfast_active_jobs
    WHERE status IN ('claimed', 'running')
    GROUP BY owner, incarnation) h ON h.owner = w.name AND h.incarnation = w.incarnation
WHERE :within_us IS NULL OR w.seen_at >= :now_at - :within_us
ORDER BY w.seen_at DESC, w.name, w.incarnation LIMIT :limit;

-- name: prune_workers
DELETE FROM holdfast_workers WHERE (name, incarnation) IN (
    SELECT name, incarnation FROM holdfast_workers WHERE seen_at < :before_at LIMIT :limit)
RETURNING 1;

-- name: take_schedule
SELECT {schedule_columns} FROM holdfast_schedules WHERE name = :name;

-- name: ready_queues
SELECT wanted.value FROM json_each(:queues) wanted
WHERE (SELECT p.paused_at FROM holdfast_queues p WHERE p.name = wanted.value) IS NULL AND (EXISTS (
    SELECT 1 FROM holdfast_jobs j INDEXED BY holdfast_jobs_ready
    WHERE j.queue = wanted.value AND j.queued AND j.subqueue IS NULL AND j.available_at <= :now_at)
    OR (SELECT p.has_flow AND (
            EXISTS (SELECT 1 FROM holdfast_subqueues s WHERE s.queue = wanted.value AND (s.is_open OR s.until <= :now_at))
            OR EXISTS (SELECT 1 FROM holdfast_subqueue_notes))
        FROM holdfast_queues p WHERE p.name = wanted.value));

-- name: next_ready
SELECT :now_at, (
    SELECT j.available_at FROM holdfast_jobs j INDEXED BY holdfast_jobs_delayed
    WHERE j.queue = wanted.value AND j.queued AND j.subqueue IS NULL AND j.available_at > j.created_at
      AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY j.available_at LIMIT 1), wanted.value, p.has_flow
FROM json_each(:queues) wanted LEFT JOIN holdfast_queues p ON p.name = wanted.value
WHERE p.paused_at IS NULL
UNION ALL
SELECT :now_at, NULL, NULL, NULL;
