-- What PostgreSQL writes differently, for the statements that both stores share and for those of this folder.

-- The time: an injected clock comes as a parameter.

-- part: now
coalesce(%(now_at)s::timestamptz, clock_timestamp());

-- The clock, read once. Use it through a subselect: a join would scan it for each row.

-- part: clock
clock AS MATERIALIZED (
    SELECT {now} AS at
);

-- The time of a change. The times of a job never decrease, also if the clock was set back.

-- part: job_now
greatest((SELECT at FROM clock), j.updated_at);

-- part: in_ids
= ANY (%(ids)s::bigint[]);

-- part: in_shown
= ANY (%(shown)s::bigint[]);

-- part: wanted_jobs
unnest(%(ids)s::bigint[]) AS wanted (id)
JOIN holdfast.jobs j ON j.id = wanted.id;

-- The events of the jobs %(jobs)s, and those after %(after)s and up to %(until)s.

-- part: job_events
holdfast.job_events(%(jobs)s::bigint[]);

-- part: events_between
holdfast.events_between(%(after)s, %(until)s);

-- Filters of lists. A parameter that is NULL does not restrict them.

-- part: event_filter
(%(types)s::text[] IS NULL OR e.type = ANY (%(types)s::text[]))
AND e.received_at >= coalesce(%(since_at)s::timestamptz, '-infinity')
AND e.received_at < coalesce(%(until_at)s::timestamptz, 'infinity');

-- part: status_filter
(%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]));

-- part: queue_filter
(%(queue)s::text IS NULL OR queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR kind = %(kind)s::text);

-- part: link_filter
(%(jobs)s::bigint[] IS NULL OR id = ANY (%(jobs)s::bigint[]))
AND (%(replay_of)s::bigint IS NULL OR replay_of = %(replay_of)s::bigint);

-- part: holder_filter
(%(owner)s::text IS NULL OR owner = %(owner)s::text)
AND (%(incarnation)s::text IS NULL OR incarnation = %(incarnation)s::text)
AND (%(assist_requested)s::boolean IS NULL OR assist_requested = %(assist_requested)s::boolean)
AND (%(phases)s::text[] IS NULL OR phase = ANY (%(phases)s::text[]))
AND (%(running_phases)s::text[] IS NULL OR status <> 'running' OR phase = ANY (%(running_phases)s::text[]));

-- Filters of agents' tasks.

-- part: task_filter
(%(queues)s::text[] IS NULL OR j.queue = ANY (%(queues)s::text[]))
AND (%(kinds)s::text[] IS NULL OR j.kind = ANY (%(kinds)s::text[]));

-- Whether the dependent d.job_id waits and ends when a dependency fails. That choice is the last field in the job's payload.

-- part: fails_with_dependency
(SELECT w.waits_for > 0 FROM holdfast.jobs w WHERE w.id = d.job_id)
AND (SELECT w.payload NOT LIKE '%%"on_dependency_failure":"wait"}'::bytea
     FROM holdfast.jobs w WHERE w.id = d.job_id);

-- The durations of each policy that say when something is due. Each policy is read once, not once for each job.

-- part: policy_times
times AS MATERIALIZED (
    SELECT id, (body::json ->> 'resume_window_ms')::bigint * interval '1 ms' AS resume_window,
        (body::json ->> 'heartbeat_interval_ms')::bigint * (body::json ->> 'missed_beats_max')::bigint
            * interval '1 ms' AS stall_after,
        (body::json ->> 'progress_timeout_ms')::bigint * interval '1 ms' AS progress_timeout,
        (body::json ->> 'cancel_grace_ms')::bigint * interval '1 ms' AS cancel_grace
    FROM holdfast.policies
);

-- Missing heartbeats before this time do not count: the clock was stepped then, or the store was out of reach. The start of the
-- server is such a time as well.

-- part: fresh_since
greatest((SELECT pos FROM holdfast.cursors WHERE name = 'fresh'), CASE
    WHEN %(now_at)s::timestamptz IS NULL AND pg_postmaster_start_time() <= clock_timestamp()
    THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END);

-- The session `a` of pg_stat_activity, for messages.

-- part: session_text
'process ' || a.pid || ' (' || coalesce(nullif(a.application_name, ''), 'no application_name') || ')'
|| coalesce(', ' || a.state || ' for ' || round(extract(epoch FROM clock_timestamp() - a.state_change)) || ' s', '');
