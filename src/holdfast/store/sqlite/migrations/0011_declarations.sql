-- What the handler of a kind declares: the queue of its jobs, and fields of its policy. The worker that started last wrote it.
CREATE TABLE holdfast_declarations (
    kind        TEXT PRIMARY KEY,
    queue       TEXT NOT NULL,
    body        TEXT NOT NULL,
    declared_at INTEGER NOT NULL,
    declared_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
