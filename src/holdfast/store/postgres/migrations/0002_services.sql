-- What a fleet of workers and their ticking services need of the ledger.

-- Jobs that had, or have, to wait: whoever is never delayed is never in it, so the hot verbs pay nothing for it.
CREATE INDEX jobs_delayed ON holdfast.jobs (queue, available_at) WHERE status = 'queued' AND available_at > created_at;

-- Which of many processes performs a ticking service, and until when nobody else does.
CREATE TABLE holdfast.duties (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Who is there. The body is a JSON object: what a worker says of itself.
-- No index on seen_at: without it, saying "still here" is a HOT update.
CREATE TABLE holdfast.workers (
    name        text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    body        text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, incarnation)
) WITH (fillfactor = 70);
