-- Signed events, the keys that may sign them, and the sealed log.

-- What was signed, byte for byte, by which key.
ALTER TABLE holdfast_events ADD COLUMN key_id TEXT;
ALTER TABLE holdfast_events ADD COLUMN signature BLOB;
ALTER TABLE holdfast_events ADD COLUMN statement BLOB;

-- The signer's own count in the newest signed event of the attempt.
ALTER TABLE holdfast_jobs ADD COLUMN counter INTEGER;

-- What a policy wants signed, as it is put behind the token of each of its leases.
ALTER TABLE holdfast_policies ADD COLUMN token_tail TEXT NOT NULL DEFAULT '';
UPDATE holdfast_policies SET token_tail = '+' || json_extract(body, '$.signed') WHERE json_extract(body, '$.signed') <> 'none';

-- Who may sign, from which position on, and until which. In the same total order as the events.
CREATE TABLE holdfast_key_log (
    pos     INTEGER PRIMARY KEY,
    change  TEXT NOT NULL CHECK (change IN ('enrolled', 'revoked')),
    key_id  TEXT NOT NULL,
    role    TEXT NOT NULL,
    name    TEXT NOT NULL,
    public  BLOB NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT NOT NULL,
    -- The key that vouches for the change; the first key of a ledger vouches for itself.
    signer    TEXT NOT NULL,
    signature BLOB NOT NULL,
    UNIQUE (key_id, change)
) STRICT;

-- The tree: hashes by the 256, level 0 those of the leaves, each level above the roots of the full tiles below.
-- positions are those of the leaves, eight bytes each.
CREATE TABLE holdfast_tiles (
    level     INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    hashes    BLOB NOT NULL,
    positions BLOB,
    last_pos  INTEGER,
    PRIMARY KEY (level, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_tiles_pos ON holdfast_tiles (last_pos) WHERE level = 0;

-- Signed tree heads, oldest first.
CREATE TABLE holdfast_heads (
    size INTEGER PRIMARY KEY,
    pos  INTEGER NOT NULL,
    root BLOB NOT NULL,
    note TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;
