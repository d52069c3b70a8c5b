-- Signed events, the keys that may sign them, and the sealed log.

-- What was signed, byte for byte, by which key.
ALTER TABLE holdfast.events
    ADD COLUMN key_id text COLLATE "C",
    ADD COLUMN signature bytea,
    ADD COLUMN statement bytea;

-- The signer's own count in the newest signed event of the attempt.
ALTER TABLE holdfast.jobs ADD COLUMN counter bigint;

-- What a policy wants signed, as it is put behind the token of each of its leases.
ALTER TABLE holdfast.policies ADD COLUMN token_tail text COLLATE "C" NOT NULL DEFAULT '';
UPDATE holdfast.policies SET token_tail = '+' || (body::json ->> 'signed') WHERE body::json ->> 'signed' <> 'none';

-- Who may sign, from which position on, and until which. In the same total order as the events.
CREATE TABLE holdfast.key_log (
    pos     bigint PRIMARY KEY DEFAULT nextval('holdfast.event_pos'),
    change  text COLLATE "C" NOT NULL CHECK (change IN ('enrolled', 'revoked')),
    key_id  text COLLATE "C" NOT NULL,
    role    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    public  bytea NOT NULL,
    at      timestamptz NOT NULL,
    by      text COLLATE "C" NOT NULL,
    -- The key that vouches for the change; the first key of a ledger vouches for itself.
    signer    text COLLATE "C" NOT NULL,
    signature bytea NOT NULL,
    UNIQUE (key_id, change)
);

-- The tree: hashes by the 256, level 0 those of the leaves, each level above the roots of the full tiles below.
-- positions are those of the leaves, eight bytes each.
CREATE TABLE holdfast.tiles (
    level     integer NOT NULL,
    number    bigint NOT NULL,
    hashes    bytea NOT NULL,
    positions bytea,
    last_pos  bigint,
    PRIMARY KEY (level, number)
);
CREATE INDEX tiles_pos ON holdfast.tiles (last_pos) WHERE level = 0;

-- Signed tree heads, oldest first.
CREATE TABLE holdfast.heads (
    size bigint PRIMARY KEY,
    pos  bigint NOT NULL,
    root bytea NOT NULL,
    note text COLLATE "C" NOT NULL,
    at   timestamptz NOT NULL
);
