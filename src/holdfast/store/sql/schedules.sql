-- Schedules.

-- part: schedule_columns
name, kind, body, source, created_at, created_by, updated_at, paused_at, paused_by, next_at, fire_at, last_at, last_job, last_error,
fired, skipped;

-- name: schedules
SELECT {schedule_columns} FROM holdfast.schedules WHERE name > :after ORDER BY name LIMIT :limit;

-- name: schedule
SELECT {schedule_columns} FROM holdfast.schedules WHERE name = :name;

-- name: schedules_of_kind
SELECT {schedule_columns} FROM holdfast.schedules WHERE kind = :kind AND source = 'handler' ORDER BY name;

-- name: count_schedules
SELECT count(*) FROM holdfast.schedules;

-- name: due_schedules
SELECT name FROM holdfast.schedules WHERE fire_at <= {now} ORDER BY fire_at, name LIMIT :limit;

-- name: troubled_schedules
SELECT name, fire_at, last_error FROM holdfast.schedules
WHERE fire_at < :before_at OR last_error IS NOT NULL
ORDER BY name LIMIT :limit;

-- name: put_schedule
INSERT INTO holdfast.schedules (name, kind, body, source, created_at, created_by, updated_at, next_at, fire_at, fired, skipped)
VALUES (:name, :kind, :body, :source, :changed_at, :changed_by, :changed_at, :next_at, :fire_at, 0, 0)
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, body = excluded.body, source = excluded.source,
    updated_at = excluded.updated_at, next_at = excluded.next_at, fire_at = excluded.fire_at;

-- A paused schedule has no `fire_at`.

-- name: pause_schedule
UPDATE holdfast.schedules
SET paused_at = :paused_at, paused_by = :paused_by, next_at = :next_at, fire_at = :fire_at, updated_at = :changed_at
WHERE name = :name;

-- name: save_firing
UPDATE holdfast.schedules
SET next_at = :next_at, fire_at = :fire_at, last_at = coalesce(:last_at, last_at), last_job = coalesce(:last_job, last_job),
    last_error = :last_error, fired = fired + :fired, skipped = skipped + :skipped
WHERE name = :name;

-- name: drop_schedule
DELETE FROM holdfast.schedules WHERE name = :name RETURNING 1;
