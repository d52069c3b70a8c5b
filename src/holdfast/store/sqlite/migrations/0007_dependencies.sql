-- Jobs that wait for others.

-- Who waits, or has waited, for whom. Where a job was replayed meanwhile, for the replay.
CREATE TABLE holdfast_dependencies (
    job_id INTEGER NOT NULL,
    on_id  INTEGER NOT NULL,
    PRIMARY KEY (job_id, on_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_dependencies_on ON holdfast_dependencies (on_id, job_id);

-- How many were ever made to wait for a job: at 0, nobody needs to be told of its end. And how many it still waits for itself.
ALTER TABLE holdfast_jobs ADD COLUMN dependents INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN waits_for INTEGER NOT NULL DEFAULT 0;

CREATE INDEX holdfast_jobs_waiting ON holdfast_jobs (id) WHERE waits_for > 0;
