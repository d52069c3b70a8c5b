-- Supervised runs: one row per name.

-- name: find_run
SELECT name, body, updated_at FROM holdfast_runs WHERE name = :name;

-- name: runs
SELECT name, body, updated_at FROM holdfast_runs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: save_run
INSERT INTO holdfast_runs (name, body, updated_at) VALUES (:name, :body, :now_at)
ON CONFLICT (name) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
