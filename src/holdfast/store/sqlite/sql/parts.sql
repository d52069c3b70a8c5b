-- What SQLite writes differently, for the statements that both stores share and for those of this folder.

-- part: now
:now_at;

-- The time of a change. The times of a job never decrease, also if the clock was set back.

-- part: job_now
max(:now_at, j.updated_at);

-- part: in_ids
IN (SELECT value FROM json_each(:ids));

-- part: in_shown
IN (SELECT value FROM json_each(:shown));

-- part: wanted_jobs
json_each(:ids) wanted
JOIN holdfast_jobs j ON j.id = wanted.value;

-- The claims of the jobs :jobs. Earlier ones are found by the events that ended them.

-- part: claims_of_jobs
(
    SELECT j.id, j.claim_pos AS pos FROM json_each(:jobs) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
    UNION
    SELECT e.job_id, e.claim_pos FROM json_each(:jobs) wanted CROSS JOIN holdfast_event_rows e ON e.job_id = wanted.value
);

-- The events of the jobs :jobs.

-- part: job_events
(
    SELECT {event_row_columns}
    FROM json_each(:jobs) wanted
    CROSS JOIN holdfast_event_rows e ON e.job_id = wanted.value
    CROSS JOIN holdfast_jobs j ON j.id = e.job_id
    UNION ALL
    SELECT * FROM (
        WITH batches AS MATERIALIZED (
            SELECT b.*, at.id AS job_id,
                instr(replace(replace(b.jobs, '[', ','), ']', ','), ',' || at.id || ',') AS place
            FROM (
                SELECT j.id, j.enqueued_pos AS pos
                FROM json_each(:jobs) wanted CROSS JOIN holdfast_jobs j ON j.id = wanted.value
                UNION ALL
                SELECT c.id, c.pos FROM {claims_of_jobs} c
                UNION ALL
                SELECT c.id, l.pos FROM {claims_of_jobs} c CROSS JOIN holdfast_event_batches l ON l.claim_pos = c.pos
            ) at
            CROSS JOIN holdfast_event_batches b ON b.pos = at.pos
        ), entries AS MATERIALIZED (
            -- The number of commas before the job is its place in the list.
            SELECT *, length(substr(jobs, 1, place)) - length(replace(substr(jobs, 1, place), ',', '')) AS key
            FROM batches WHERE place > 0
        )
        SELECT entry.pos + entry.key * (1 + entry.starts) + step.n, j.id, coalesce(entry.revs ->> entry.key, entry.rev) + step.n,
            iif(step.n, 'started', entry.type), coalesce(entry.times ->> entry.key, entry.received_at), NULL, entry.actor,
            coalesce(entry.attempts ->> entry.key, entry.attempt), iif(step.n, 'claimed', entry.from_status),
            iif(step.n, 'running', entry.to_status),
            iif(step.n, NULL, entry.reason), entry.request_id, entry.cause,
            CASE entry.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
            iif(step.n, NULL, coalesce(entry.policy_ids ->> entry.key, entry.policy_id)), j.correlation_id, j.trace_id, NULL,
            NULL, NULL
        FROM entries entry
        CROSS JOIN holdfast_jobs j ON j.id = entry.job_id
        CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= entry.starts
    )
);

-- The events after :after and up to :until.

-- part: events_between
(
    SELECT {event_row_columns}
    FROM holdfast_event_rows e CROSS JOIN holdfast_jobs j ON j.id = e.job_id
    WHERE e.pos > :after AND e.pos <= :until
    UNION ALL
    SELECT b.pos + i.key * (1 + b.starts) + step.n, j.id, coalesce(b.revs ->> i.key, b.rev) + step.n,
        iif(step.n, 'started', b.type), coalesce(b.times ->> i.key, b.received_at), NULL, b.actor,
        coalesce(b.attempts ->> i.key, b.attempt), iif(step.n, 'claimed', b.from_status), iif(step.n, 'running', b.to_status),
        iif(step.n, NULL, b.reason), b.request_id, b.cause,
        CASE b.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
        iif(step.n, NULL, coalesce(b.policy_ids ->> i.key, b.policy_id)), j.correlation_id, j.trace_id, NULL, NULL, NULL
    FROM holdfast_event_batches b
    CROSS JOIN json_each(b.jobs) i
    CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= b.starts
    CROSS JOIN holdfast_jobs j ON j.id = i.value
    WHERE b.pos > :after - 2048 AND b.pos <= :until
        AND b.pos + i.key * (1 + b.starts) + step.n > :after AND b.pos + i.key * (1 + b.starts) + step.n <= :until
);

-- Filters of lists. A parameter that is NULL does not restrict them.

-- part: event_filter
(:types IS NULL OR e.type IN (SELECT value FROM json_each(:types)))
AND (:since_at IS NULL OR e.received_at >= :since_at) AND (:until_at IS NULL OR e.received_at < :until_at);

-- part: status_filter
(:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)));

-- part: queue_filter
(:queue IS NULL OR queue = :queue) AND (:kind IS NULL OR kind = :kind);

-- part: link_filter
(:jobs IS NULL OR id IN (SELECT value FROM json_each(:jobs)))
AND (:replay_of IS NULL OR replay_of = :replay_of);

-- part: holder_filter
(:owner IS NULL OR owner = :owner) AND (:incarnation IS NULL OR incarnation = :incarnation)
AND (:assist_requested IS NULL OR assist_requested = :assist_requested)
AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
AND (:running_phases IS NULL OR status <> 'running' OR phase IN (SELECT value FROM json_each(:running_phases)));

-- Filters of agents' tasks.

-- part: task_filter
(:queues IS NULL OR j.queue IN (SELECT value FROM json_each(:queues)))
AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)));

-- Whether the dependent d.job_id waits and ends when a dependency fails. That choice is the last field in the job's payload.

-- part: fails_with_dependency
(SELECT w.waits_for > 0 FROM holdfast_jobs w WHERE w.id = d.job_id)
AND (SELECT substr(w.payload, -length('"on_dependency_failure":"wait"}'))
             <> CAST('"on_dependency_failure":"wait"}' AS BLOB)
     FROM holdfast_jobs w WHERE w.id = d.job_id);

-- The durations of each policy that say when something is due. Each policy is read once, not once for each job.

-- part: policy_times
times AS MATERIALIZED (
    SELECT id, 1000 * (body ->> 'resume_window_ms') AS resume_window,
        1000 * (body ->> 'heartbeat_interval_ms') * (body ->> 'missed_beats_max') AS stall_after,
        1000 * (body ->> 'progress_timeout_ms') AS progress_timeout, 1000 * (body ->> 'cancel_grace_ms') AS cancel_grace
    FROM holdfast_policies
);
