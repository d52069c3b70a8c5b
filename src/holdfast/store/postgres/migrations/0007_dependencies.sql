-- Jobs that wait for others.

-- Who waits, or has waited, for whom. Where a job was replayed meanwhile, for the replay.
CREATE TABLE holdfast.dependencies (
    job_id bigint NOT NULL,
    on_id  bigint NOT NULL,
    PRIMARY KEY (job_id, on_id)
);

CREATE INDEX dependencies_on ON holdfast.dependencies (on_id, job_id);

-- How many were ever made to wait for a job: at 0, nobody needs to be told of its end. And how many it still waits for itself.
ALTER TABLE holdfast.jobs ADD COLUMN dependents integer NOT NULL DEFAULT 0, ADD COLUMN waits_for integer NOT NULL DEFAULT 0;

CREATE INDEX jobs_waiting ON holdfast.jobs (id) WHERE waits_for > 0;
