-- Fences at the resource: the newest attempt of each job that a resource has seen. Only a hash of the fence's token is stored.

-- name: find_fences
SELECT to_regclass('holdfast_fences')::text;

-- name: lock_fences
SELECT pg_advisory_xact_lock(hashtextextended('holdfast_fences', 0));

-- name: create_fences
CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource text COLLATE "C" NOT NULL,
    job_id   bigint NOT NULL,
    attempt  integer NOT NULL,
    proof    text COLLATE "C" NOT NULL,
    PRIMARY KEY (resource, job_id)
);

-- name: raise_fence
INSERT INTO holdfast_fences AS f (resource, job_id, attempt, proof) VALUES (%s, %s, %s, %s)
ON CONFLICT (resource, job_id) DO UPDATE SET attempt = excluded.attempt, proof = excluded.proof
WHERE f.attempt < excluded.attempt OR (f.attempt = excluded.attempt AND f.proof = excluded.proof)
RETURNING attempt;

-- name: seen_fence
SELECT attempt FROM holdfast_fences WHERE resource = %s AND job_id = %s;
