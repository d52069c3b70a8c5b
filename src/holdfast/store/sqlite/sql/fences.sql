-- Fences at the resource: the newest attempt of each job that a resource has seen. Only a hash of the fence's token is stored.

-- name: create_fences
CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource TEXT NOT NULL,
    job_id   INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    proof    TEXT NOT NULL,
    PRIMARY KEY (resource, job_id)
) STRICT, WITHOUT ROWID;

-- name: raise_fence
INSERT INTO holdfast_fences (resource, job_id, attempt, proof) VALUES (?, ?, ?, ?)
ON CONFLICT (resource, job_id) DO UPDATE SET attempt = excluded.attempt, proof = excluded.proof
WHERE attempt < excluded.attempt OR (attempt = excluded.attempt AND proof = excluded.proof)
RETURNING attempt;

-- name: seen_fence
SELECT attempt FROM holdfast_fences WHERE resource = ? AND job_id = ?;
