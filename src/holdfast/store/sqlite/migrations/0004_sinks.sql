-- How far each sink of the outbox has been told, and what stands in its way. The outbox itself is the table of events.
CREATE TABLE holdfast_sinks (
    name       TEXT PRIMARY KEY,
    pos        INTEGER NOT NULL,
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   INTEGER,
    dead_at    INTEGER,
    last_error TEXT,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
