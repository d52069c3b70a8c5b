-- Supervised runs: one row per name.

-- name: find_run
SELECT name, body, updated_at FROM holdfast.runs WHERE name = %(name)s;

-- name: runs
SELECT name, body, updated_at FROM holdfast.runs WHERE name > %(after)s ORDER BY name LIMIT %(limit)s;

-- name: save_run
INSERT INTO holdfast.runs (name, body, updated_at)
VALUES (%(name)s, %(body)s, coalesce(%(now_at)s::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
