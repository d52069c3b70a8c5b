-- The ledger. Payloads live in events and nowhere else: a job's row only says where it stands.
-- Times are microseconds since 1970, UTC.

CREATE TABLE holdfast_meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Resolved policies, by content: a snapshot is a reference to a row that never changes.
CREATE TABLE holdfast_policies (
    id       INTEGER PRIMARY KEY,
    body     TEXT NOT NULL UNIQUE,
    lease_us INTEGER NOT NULL
) STRICT;

-- What users set, by kind and by tier.
CREATE TABLE holdfast_settings (
    scope TEXT NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  TEXT NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- Every combination of kind, tier and a job's own settings that was ever enqueued, with the policy it has today.
CREATE TABLE holdfast_profiles (
    id        INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    tier      TEXT NOT NULL,
    override  TEXT NOT NULL,
    policy_id INTEGER NOT NULL REFERENCES holdfast_policies (id),
    UNIQUE (kind, tier, override)
) STRICT;

CREATE TABLE holdfast_jobs (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    queue                 TEXT NOT NULL,
    kind                  TEXT NOT NULL,
    status                TEXT NOT NULL,
    rev                   INTEGER NOT NULL,
    attempt               INTEGER NOT NULL,
    priority              INTEGER NOT NULL,
    available_at          INTEGER NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    profile_id            INTEGER NOT NULL,
    policy_id             INTEGER,
    phase                 TEXT,
    releases              INTEGER NOT NULL DEFAULT 0,
    owner                 TEXT,
    incarnation           TEXT,
    token                 TEXT,
    claimed_at            INTEGER,
    lease_expires_at      INTEGER,
    last_beat_at          INTEGER,
    started_at            INTEGER,
    finished_at           INTEGER,
    stage                 TEXT,
    progress              INTEGER,
    progressed_at         INTEGER,
    assist_requested      INTEGER NOT NULL DEFAULT 0,
    last_owner            TEXT,
    last_lease_expires_at INTEGER,
    last_error            BLOB,
    stall_reason          TEXT,
    stalled_at            INTEGER,
    revived_at            INTEGER,
    cancel_reason         TEXT,
    cancel_requested_at   INTEGER,
    reason_code           TEXT,
    failure_stage         TEXT,
    result_rev            INTEGER,
    note                  TEXT,
    dedupe_key            TEXT,
    dedupe_forever        INTEGER NOT NULL DEFAULT 0,
    correlation_id        TEXT,
    trace_id              TEXT,
    replay_of             INTEGER,
    CHECK (status IN ('queued', 'claimed', 'running', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered')),
    CHECK ((status IN ('claimed', 'running')) = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result_rev IS NOT NULL))
) STRICT;

CREATE INDEX holdfast_jobs_ready ON holdfast_jobs (queue, priority DESC, available_at, id) WHERE status = 'queued';
CREATE INDEX holdfast_jobs_active ON holdfast_jobs (id) WHERE status IN ('claimed', 'running', 'stalled');
CREATE INDEX holdfast_jobs_ended ON holdfast_jobs (status, id) WHERE status IN ('failed', 'cancelled', 'dead_lettered');
CREATE INDEX holdfast_jobs_replay ON holdfast_jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE UNIQUE INDEX holdfast_jobs_dedupe ON holdfast_jobs (queue, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND (dedupe_forever = 1 OR status IN ('queued', 'claimed', 'running', 'stalled'));

-- Append-only. pos is the one total order. correlation_id is set on first events only, where the caller gave one.
CREATE TABLE holdfast_events (
    pos            INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         INTEGER NOT NULL,
    rev            INTEGER NOT NULL,
    type           TEXT NOT NULL,
    received_at    INTEGER NOT NULL,
    at             INTEGER,
    actor          TEXT NOT NULL,
    attempt        INTEGER NOT NULL,
    from_status    TEXT,
    to_status      TEXT NOT NULL,
    reason         TEXT,
    request_id     TEXT,
    cause          TEXT,
    payload        BLOB,
    policy_id      INTEGER,
    correlation_id TEXT
) STRICT;

CREATE UNIQUE INDEX holdfast_events_job ON holdfast_events (job_id, rev);
CREATE INDEX holdfast_events_correlation ON holdfast_events (correlation_id) WHERE correlation_id IS NOT NULL;
-- The five everyday types are found by position; what people search for by type and time is rare.
CREATE INDEX holdfast_events_type ON holdfast_events (type, received_at)
    WHERE type NOT IN ('enqueued', 'claimed', 'started', 'heartbeat', 'succeeded');

-- Answers to calls, for when the same call comes again.
CREATE TABLE holdfast_requests (
    actor      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    verb       TEXT NOT NULL,
    body_hash  BLOB NOT NULL,
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (actor, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_queues (
    name      TEXT PRIMARY KEY,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

-- Where each follower of the total order, and each slow walk through the table, has got to.
CREATE TABLE holdfast_cursors (
    name TEXT PRIMARY KEY,
    pos  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
