-- Sessions of agents, and the events and dependencies that are shown to them.

-- name: find_agent
SELECT focus, last, cursor FROM holdfast.agents WHERE name = :name AND session = :session;

-- name: last_agent
SELECT max(updated_at) FROM holdfast.agents;

-- name: own_tasks
SELECT id FROM holdfast.active_jobs
WHERE status IN ('claimed', 'running') AND owner = :name AND incarnation = :session
ORDER BY status DESC, id LIMIT :limit;

-- name: has_event
SELECT 1 FROM {job_events} e WHERE e.pos = :cursor;

-- name: newest_events
SELECT {event_columns} FROM {job_events} e
WHERE e.pos > :after ORDER BY e.rev DESC LIMIT :limit;

-- name: count_events
SELECT count(*) FROM (SELECT 1 FROM {job_events} e WHERE e.rev < :rev_below AND e.pos > :after LIMIT :limit) AS older;

-- name: blockers
SELECT j.id, j.kind, j.status, j.waits_for
FROM holdfast.dependencies d JOIN holdfast.jobs j ON j.id = d.on_id
WHERE d.job_id = :job_id AND j.status <> 'succeeded' ORDER BY j.id LIMIT :limit;

-- Dependents are looked up by primary key. The `+ 0` keeps the planner from using the index of all waiting jobs.

-- name: unlocks
SELECT j.id, j.kind, j.status, j.waits_for
FROM holdfast.dependencies d JOIN holdfast.jobs j ON j.id = d.job_id
WHERE d.on_id = :on_id AND j.waits_for + 0 > 0 ORDER BY j.id LIMIT :limit;
