-- What supervisors know of the programs they run, so that it outlives them. The body is a JSON object.
-- Written every few seconds, by its key: without another index that is a HOT update.
CREATE TABLE holdfast.runs (
    name       text COLLATE "C" PRIMARY KEY,
    body       text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
