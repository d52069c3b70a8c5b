-- What the handler of a kind declares: the queue of its jobs, and fields of its policy. The worker that started last wrote it.
CREATE TABLE holdfast.declarations (
    kind        text COLLATE "C" PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,
    body        text COLLATE "C" NOT NULL,
    declared_at timestamptz NOT NULL,
    declared_by text COLLATE "C" NOT NULL
);
