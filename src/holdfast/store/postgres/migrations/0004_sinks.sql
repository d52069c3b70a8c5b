-- How far each sink of the outbox has been told, and what stands in its way. The outbox itself is the table of events.
CREATE TABLE holdfast.sinks (
    name       text COLLATE "C" PRIMARY KEY,
    pos        bigint NOT NULL,
    failures   integer NOT NULL DEFAULT 0,
    retry_at   timestamptz,
    dead_at    timestamptz,
    last_error text COLLATE "C",
    updated_at timestamptz NOT NULL
);
