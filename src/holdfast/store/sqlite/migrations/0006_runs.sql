-- What supervisors know of the programs they run, so that it outlives them. The body is a JSON object.
CREATE TABLE holdfast_runs (
    name       TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
