-- The times of each block of some hundred events, by position: those after after_pos, up to pos. The newest are in no block yet.
-- A clock may be set back, so times do not always rise with positions; high_at, the latest time up to the end of the block, does.
CREATE TABLE holdfast_times (
    pos       INTEGER PRIMARY KEY,
    after_pos INTEGER NOT NULL,
    min_at    INTEGER NOT NULL,
    max_at    INTEGER NOT NULL,
    high_at   INTEGER NOT NULL
) STRICT;

INSERT INTO holdfast_times (pos, after_pos, min_at, max_at, high_at)
SELECT pos, lag(pos, 1, 0) OVER (ORDER BY pos), min_at, max_at, max(max_at) OVER (ORDER BY pos) FROM (
    SELECT max(pos) AS pos, min(received_at) AS min_at, max(received_at) AS max_at
    FROM (SELECT pos, received_at, (row_number() OVER (ORDER BY pos) - 1) / 200 AS block FROM holdfast_events)
    GROUP BY block HAVING count(*) = 200
);

CREATE INDEX holdfast_times_high ON holdfast_times (high_at);
