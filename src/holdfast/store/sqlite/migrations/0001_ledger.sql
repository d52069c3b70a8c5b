-- The tables of a ledger. The table holdfast_schema, which holds the version of this schema, is made before this file runs.
-- Times are microseconds since 1970, UTC. Booleans are 0 and 1.

-- The ledger

-- Facts about the ledger as a whole, by name. The row ledger_id distinguishes it from every other ledger.
CREATE TABLE holdfast_meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Numbers that sweeping and retention keep, by name: where a slow walk through the jobs has got to, since when sweeps have run,
-- and which jobs a sweep has to visit for their dependents.
CREATE TABLE holdfast_cursors (
    name TEXT PRIMARY KEY,
    pos  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers to calls, by the request id of the call. A call that comes again gets the stored answer and changes nothing.
CREATE TABLE holdfast_requests (
    actor      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    verb       TEXT NOT NULL,
    body_hash  BLOB NOT NULL,
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (actor, request_id)
) STRICT, WITHOUT ROWID;

-- Policies

-- Resolved policies, one row for each content. A row never changes, so a job's policy_id is a snapshot.
-- token_tail ends the token of each lease: it says what the policy wants signed.
CREATE TABLE holdfast_policies (
    id         INTEGER PRIMARY KEY,
    body       TEXT NOT NULL UNIQUE,
    lease_us   INTEGER NOT NULL,
    token_tail TEXT NOT NULL DEFAULT ''
) STRICT;

-- The policy fields that operators have set for a kind or a tier. The body is a JSON object.
CREATE TABLE holdfast_settings (
    scope TEXT NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  TEXT NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- What the handler of a kind declares: the queue of its jobs and fields of their policy. The worker that started last wrote it.
CREATE TABLE holdfast_declarations (
    kind        TEXT PRIMARY KEY,
    queue       TEXT NOT NULL,
    body        TEXT NOT NULL,
    declared_at INTEGER NOT NULL,
    declared_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Each combination of a kind, a tier and a job's own policy fields that was ever enqueued, with the policy that it has today.
CREATE TABLE holdfast_profiles (
    id        INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    tier      TEXT NOT NULL,
    override  TEXT NOT NULL,
    policy_id INTEGER NOT NULL REFERENCES holdfast_policies (id),
    UNIQUE (kind, tier, override)
) STRICT;

-- Jobs

-- One row for each job: its state after its newest event. Arguments, results and checkpoints are in the events only;
-- result_rev and checkpoint_rev name the event that has them.
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
    -- The holder, its lease, and how far it is.
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
    -- The signer's own counter in the newest signed event of the attempt.
    counter               INTEGER,
    -- The newest failure, stall and request to cancel.
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
    checkpoint_rev        INTEGER,
    -- How many undo steps have to run if the job does not succeed.
    undo_owed             INTEGER NOT NULL DEFAULT 0,
    note                  TEXT,
    dedupe_key            TEXT,
    dedupe_forever        INTEGER NOT NULL DEFAULT 0,
    correlation_id        TEXT,
    trace_id              TEXT,
    replay_of             INTEGER,
    -- How many jobs were ever made to wait for this one, and for how many it waits itself.
    dependents            INTEGER NOT NULL DEFAULT 0,
    waits_for             INTEGER NOT NULL DEFAULT 0,
    CHECK (status IN ('queued', 'claimed', 'running', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered')),
    CHECK ((status IN ('claimed', 'running')) = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result_rev IS NOT NULL))
) STRICT;

-- The order of claims.
CREATE INDEX holdfast_jobs_ready ON holdfast_jobs (queue, priority DESC, available_at, id) WHERE status = 'queued';
-- Jobs that were delayed. A job that is available at once is not in it, so enqueues and claims of such jobs cost nothing more.
CREATE INDEX holdfast_jobs_delayed ON holdfast_jobs (queue, available_at) WHERE status = 'queued' AND available_at > created_at;
CREATE INDEX holdfast_jobs_active ON holdfast_jobs (id) WHERE status IN ('claimed', 'running', 'stalled');
CREATE INDEX holdfast_jobs_ended ON holdfast_jobs (status, id) WHERE status IN ('failed', 'cancelled', 'dead_lettered');
CREATE INDEX holdfast_jobs_owing ON holdfast_jobs (id) WHERE undo_owed > 0 AND finished_at IS NOT NULL;
CREATE INDEX holdfast_jobs_waiting ON holdfast_jobs (id) WHERE waits_for > 0;
CREATE INDEX holdfast_jobs_replay ON holdfast_jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE UNIQUE INDEX holdfast_jobs_dedupe ON holdfast_jobs (queue, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND (dedupe_forever = 1 OR status IN ('queued', 'claimed', 'running', 'stalled'));

-- Which job waits, or has waited, for which. If that job was replayed meanwhile, on_id is the replay.
CREATE TABLE holdfast_dependencies (
    job_id INTEGER NOT NULL,
    on_id  INTEGER NOT NULL,
    PRIMARY KEY (job_id, on_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_dependencies_on ON holdfast_dependencies (on_id, job_id);

-- Queues that are paused or were paused once: since when, by whom and why. Other queues have no row.
CREATE TABLE holdfast_queues (
    name         TEXT PRIMARY KEY,
    paused_at    INTEGER,
    paused_by    TEXT,
    pause_reason TEXT
) STRICT, WITHOUT ROWID;

-- Events

-- Every accepted change of a job, with its payload. A row never changes; retention deletes old ones. Events and changes of keys
-- have places, pos, in one total order. Only the first event of a job has a correlation_id, if the caller gave one.
-- A signed event has the statement that was signed, byte for byte, and the key that signed it.
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
    correlation_id TEXT,
    key_id         TEXT,
    signature      BLOB,
    statement      BLOB
) STRICT;

CREATE UNIQUE INDEX holdfast_events_job ON holdfast_events (job_id, rev);
CREATE INDEX holdfast_events_correlation ON holdfast_events (correlation_id) WHERE correlation_id IS NOT NULL;
-- The five most frequent types are left out, which keeps this index small. They are found through holdfast_times.
CREATE INDEX holdfast_events_type ON holdfast_events (type, received_at)
    WHERE type NOT IN ('enqueued', 'claimed', 'started', 'heartbeat', 'succeeded');

-- The times of the events in blocks of some hundred: those after after_pos, up to pos. The newest events are in no block yet.
-- Times may go back if a clock is set back. high_at never does: it is the latest time of this block and all earlier ones.
CREATE TABLE holdfast_times (
    pos       INTEGER PRIMARY KEY,
    after_pos INTEGER NOT NULL,
    min_at    INTEGER NOT NULL,
    max_at    INTEGER NOT NULL,
    high_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX holdfast_times_high ON holdfast_times (high_at);

-- The outbox: up to which position each sink has received the events, and the error that stops it, if any.
CREATE TABLE holdfast_sinks (
    name       TEXT PRIMARY KEY,
    pos        INTEGER NOT NULL,
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   INTEGER,
    dead_at    INTEGER,
    last_error TEXT,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The sealed log

-- Keys that were enrolled and revoked. A key is valid between the positions of its two rows. signer is the key that signed the
-- change; the first key of a ledger signs its own.
CREATE TABLE holdfast_key_log (
    pos       INTEGER PRIMARY KEY,
    change    TEXT NOT NULL CHECK (change IN ('enrolled', 'revoked')),
    key_id    TEXT NOT NULL,
    role      TEXT NOT NULL,
    name      TEXT NOT NULL,
    public    BLOB NOT NULL,
    at        INTEGER NOT NULL,
    by        TEXT NOT NULL,
    signer    TEXT NOT NULL,
    signature BLOB NOT NULL,
    UNIQUE (key_id, change)
) STRICT;

-- The Merkle tree, in tiles of 256 hashes. Level 0 has the hashes of the leaves, each higher level the roots of the full tiles
-- below it. positions are the positions of the leaves, eight bytes each.
CREATE TABLE holdfast_tiles (
    level     INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    hashes    BLOB NOT NULL,
    positions BLOB,
    last_pos  INTEGER,
    PRIMARY KEY (level, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_tiles_pos ON holdfast_tiles (last_pos) WHERE level = 0;

-- Signed heads of the tree, by the number of leaves that they cover.
CREATE TABLE holdfast_heads (
    size INTEGER PRIMARY KEY,
    pos  INTEGER NOT NULL,
    root BLOB NOT NULL,
    note TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- Workers, agents and supervisors

-- Which workers are there, and what each says about itself, as a JSON object.
CREATE TABLE holdfast_workers (
    name        TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (name, incarnation)
) STRICT;

-- Which process performs a periodic service, such as sweeping, and until when no other process does.
CREATE TABLE holdfast_duties (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Agents, by session: the task that each works on, the last one that it had, and the position up to which it has read.
CREATE TABLE holdfast_agents (
    name       TEXT NOT NULL,
    session    TEXT NOT NULL,
    focus      INTEGER,
    last       INTEGER,
    cursor     INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (name, session)
) STRICT, WITHOUT ROWID;

-- What supervisors know about the programs that they run, as JSON objects. A restarted supervisor reads it.
CREATE TABLE holdfast_runs (
    name       TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
