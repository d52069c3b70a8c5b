-- Schedules.

-- part: schedule_columns
name, kind, body, source, created_at, created_by, updated_at, paused_at, paused_by, next_at, fire_at, last_at, last_job, last_error,
fired, skipped, run_at, made;

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
INSERT INTO holdfast.schedules (
    name, kind, body, source, created_at, created_by, updated_at, next_at, fire_at, fired, skipped, run_at, made)
VALUES (:name, :kind, :body, :source, :changed_at, :changed_by, :changed_at, :next_at, :fire_at, 0, 0, :run_at, :made)
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, body = excluded.body, source = excluded.source,
    updated_at = excluded.updated_at, next_at = excluded.next_at, fire_at = excluded.fire_at, run_at = excluded.run_at,
    made = excluded.made;

-- A paused schedule has no `fire_at`.

-- name: pause_schedule
UPDATE holdfast.schedules
SET paused_at = :paused_at, paused_by = :paused_by, next_at = :next_at, fire_at = :fire_at, updated_at = :changed_at,
    run_at = :run_at, made = :made
WHERE name = :name;

-- name: save_firing
UPDATE holdfast.schedules
SET next_at = :next_at, fire_at = :fire_at, last_at = coalesce(:last_at, last_at), last_job = coalesce(:last_job, last_job),
    last_error = :last_error, fired = fired + :fired, skipped = skipped + :skipped, run_at = :run_at, made = :made
WHERE name = :name;

-- Schedules that were changed, or fired, at a later time than now. A schedule that waits for its first firing has that time in
-- `run_at` and in `next_at`.

-- name: stepped_schedules
SELECT name FROM holdfast.schedules
WHERE paused_at IS NULL
  AND (updated_at > {now} OR last_at > {now} OR (run_at > {now} AND (next_at IS NULL OR next_at <> run_at)))
ORDER BY name LIMIT :limit;

-- name: save_position
UPDATE holdfast.schedules
SET next_at = :next_at, fire_at = :fire_at, run_at = :run_at, made = :made WHERE name = :name;

-- name: drop_schedule
DELETE FROM holdfast.schedules WHERE name = :name RETURNING 1;
