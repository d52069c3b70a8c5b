-- What a fleet of workers and their ticking services need of the ledger.

-- Jobs that had, or have, to wait: whoever is never delayed is never in it, so the hot verbs pay nothing for it.
CREATE INDEX holdfast_jobs_delayed ON holdfast_jobs (queue, available_at) WHERE status = 'queued' AND available_at > created_at;

-- Which of many processes performs a ticking service, and until when nobody else does.
CREATE TABLE holdfast_duties (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who is there. The body is a JSON object: what a worker says of itself.
CREATE TABLE holdfast_workers (
    name        TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (name, incarnation)
) STRICT;
