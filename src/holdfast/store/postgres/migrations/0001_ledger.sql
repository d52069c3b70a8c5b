-- The tables of a ledger. The table schema_version, which holds the version of this schema, is made before this file runs.
-- Texts have the collation "C": names and keys are compared byte by byte, in every database alike.

-- The ledger

-- Facts about the ledger as a whole, by name. The row ledger_id distinguishes it from every other ledger.
CREATE TABLE holdfast.meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Positions. Events and changes of keys have places in one total order.
CREATE SEQUENCE holdfast.event_pos AS bigint CACHE 1;

-- Numbers that sweeping and retention keep, by name: where a slow walk through the jobs has got to, since when sweeps have run,
-- and which jobs a sweep has to visit for their dependents.
CREATE TABLE holdfast.cursors (
    name text COLLATE "C" PRIMARY KEY,
    pos  bigint NOT NULL
);

-- Answers to calls, by the request id of the call. A call that comes again gets the stored answer and changes nothing.
CREATE TABLE holdfast.requests (
    actor      text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    verb       text COLLATE "C" NOT NULL,
    body_hash  bytea NOT NULL,
    answer     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (actor, request_id)
);

-- Policies

-- Resolved policies, one row for each content. A row never changes, so a job's policy_id is a snapshot.
-- token_tail ends the token of each lease: it says what the policy wants signed.
CREATE TABLE holdfast.policies (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body       text COLLATE "C" NOT NULL UNIQUE,
    lease      interval NOT NULL,
    token_tail text COLLATE "C" NOT NULL DEFAULT ''
);

-- The policy fields that operators have set for a kind or a tier. The body is a JSON object.
CREATE TABLE holdfast.settings (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  text COLLATE "C" NOT NULL,
    body  text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, name)
);

-- What the handler of a kind declares: the queue of its jobs and fields of their policy. The worker that started last wrote it.
CREATE TABLE holdfast.declarations (
    kind        text COLLATE "C" PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,
    body        text COLLATE "C" NOT NULL,
    declared_at timestamptz NOT NULL,
    declared_by text COLLATE "C" NOT NULL
);

-- Each combination of a kind, a tier and a job's own policy fields that was ever enqueued, with the policy that it has today.
CREATE TABLE holdfast.profiles (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    tier      text COLLATE "C" NOT NULL,
    override  text COLLATE "C" NOT NULL,
    policy_id integer NOT NULL REFERENCES holdfast.policies (id),
    UNIQUE (kind, tier, override)
);

-- Jobs

CREATE SEQUENCE holdfast.job_id AS bigint;

-- One row for each job: its state after its newest event. Arguments, results and checkpoints are in the events only;
-- result_rev and checkpoint_rev name the event that has them.
CREATE TABLE holdfast.jobs (
    id                    bigint PRIMARY KEY,
    queue                 text COLLATE "C" NOT NULL,
    kind                  text COLLATE "C" NOT NULL,
    status                text COLLATE "C" NOT NULL,
    rev                   integer NOT NULL,
    attempt               integer NOT NULL,
    priority              integer NOT NULL,
    available_at          timestamptz NOT NULL,
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL,
    profile_id            integer NOT NULL,
    policy_id             integer,
    phase                 text COLLATE "C",
    releases              integer NOT NULL DEFAULT 0,
    -- The holder, its lease, and how far it is.
    owner                 text COLLATE "C",
    incarnation           text COLLATE "C",
    token                 text COLLATE "C",
    claimed_at            timestamptz,
    lease_expires_at      timestamptz,
    last_beat_at          timestamptz,
    started_at            timestamptz,
    finished_at           timestamptz,
    stage                 text COLLATE "C",
    progress              bigint,
    progressed_at         timestamptz,
    assist_requested      boolean NOT NULL DEFAULT false,
    -- The signer's own counter in the newest signed event of the attempt.
    counter               bigint,
    -- The newest failure, stall and request to cancel.
    last_owner            text COLLATE "C",
    last_lease_expires_at timestamptz,
    last_error            bytea,
    stall_reason          text COLLATE "C",
    stalled_at            timestamptz,
    revived_at            timestamptz,
    cancel_reason         text COLLATE "C",
    cancel_requested_at   timestamptz,
    reason_code           text COLLATE "C",
    failure_stage         text COLLATE "C",
    result_rev            integer,
    checkpoint_rev        integer,
    -- How many undo steps have to run if the job does not succeed.
    undo_owed             integer NOT NULL DEFAULT 0,
    note                  text COLLATE "C",
    dedupe_key            text COLLATE "C",
    dedupe_forever        boolean NOT NULL DEFAULT false,
    correlation_id        text COLLATE "C",
    trace_id              text COLLATE "C",
    replay_of             bigint,
    -- How many jobs were ever made to wait for this one, and for how many it waits itself.
    dependents            integer NOT NULL DEFAULT 0,
    waits_for             integer NOT NULL DEFAULT 0,
    CHECK (status IN ('queued', 'claimed', 'running', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered')),
    CHECK ((status IN ('claimed', 'running')) = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result_rev IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- The order of claims. All columns ascend, so that one row comparison can say "after this place".
CREATE INDEX jobs_ready ON holdfast.jobs (queue, (-priority), available_at, id) WHERE status = 'queued';
-- Jobs that were delayed. A job that is available at once is not in it, so enqueues and claims of such jobs cost nothing more.
CREATE INDEX jobs_delayed ON holdfast.jobs (queue, available_at) WHERE status = 'queued' AND available_at > created_at;
CREATE INDEX jobs_active ON holdfast.jobs (id) WHERE status IN ('claimed', 'running', 'stalled');
CREATE INDEX jobs_ended ON holdfast.jobs (status, id) WHERE status IN ('failed', 'cancelled', 'dead_lettered');
CREATE INDEX jobs_owing ON holdfast.jobs (id) WHERE undo_owed > 0 AND finished_at IS NOT NULL;
CREATE INDEX jobs_waiting ON holdfast.jobs (id) WHERE waits_for > 0;
CREATE INDEX jobs_replay ON holdfast.jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE UNIQUE INDEX jobs_dedupe ON holdfast.jobs (queue, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND (dedupe_forever OR status IN ('queued', 'claimed', 'running', 'stalled'));

-- Which job waits, or has waited, for which. If that job was replayed meanwhile, on_id is the replay.
CREATE TABLE holdfast.dependencies (
    job_id bigint NOT NULL,
    on_id  bigint NOT NULL,
    PRIMARY KEY (job_id, on_id)
);

CREATE INDEX dependencies_on ON holdfast.dependencies (on_id, job_id);

-- Queues that are paused or were paused once: since when, by whom and why. Other queues have no row.
CREATE TABLE holdfast.queues (
    name         text COLLATE "C" PRIMARY KEY,
    paused_at    timestamptz,
    paused_by    text COLLATE "C",
    pause_reason text COLLATE "C"
);

-- Events

-- Every accepted change of a job, with its payload. A row never changes; retention deletes old ones. pos is drawn after the
-- job's row was locked and written. Only the first event of a job has a correlation_id, if the caller gave one.
-- A signed event has the statement that was signed, byte for byte, and the key that signed it.
CREATE TABLE holdfast.events (
    pos            bigint NOT NULL DEFAULT nextval('holdfast.event_pos'),
    job_id         bigint NOT NULL,
    rev            integer NOT NULL,
    type           text COLLATE "C" NOT NULL,
    received_at    timestamptz NOT NULL,
    at             timestamptz,
    actor          text COLLATE "C" NOT NULL,
    attempt        integer NOT NULL,
    from_status    text COLLATE "C",
    to_status      text COLLATE "C" NOT NULL,
    reason         text COLLATE "C",
    request_id     text COLLATE "C",
    cause          text COLLATE "C",
    payload        bytea,
    policy_id      integer,
    correlation_id text COLLATE "C",
    key_id         text COLLATE "C",
    signature      bytea,
    statement      bytea,
    PRIMARY KEY (job_id, rev)
);

CREATE UNIQUE INDEX events_pos ON holdfast.events (pos);
CREATE INDEX events_correlation ON holdfast.events (correlation_id) WHERE correlation_id IS NOT NULL;
-- The five most frequent types are left out, which keeps this index small. They are found by time.
CREATE INDEX events_type ON holdfast.events (type, received_at)
    WHERE type NOT IN ('enqueued', 'claimed', 'started', 'heartbeat', 'succeeded');
CREATE INDEX events_time ON holdfast.events USING brin (received_at) WITH (autosummarize = on);

-- The outbox: up to which position each sink has received the events, and the error that stops it, if any.
CREATE TABLE holdfast.sinks (
    name       text COLLATE "C" PRIMARY KEY,
    pos        bigint NOT NULL,
    failures   integer NOT NULL DEFAULT 0,
    retry_at   timestamptz,
    dead_at    timestamptz,
    last_error text COLLATE "C",
    updated_at timestamptz NOT NULL
);

-- The sealed log

-- Keys that were enrolled and revoked. A key is valid between the positions of its two rows. signer is the key that signed the
-- change; the first key of a ledger signs its own.
CREATE TABLE holdfast.key_log (
    pos       bigint PRIMARY KEY DEFAULT nextval('holdfast.event_pos'),
    change    text COLLATE "C" NOT NULL CHECK (change IN ('enrolled', 'revoked')),
    key_id    text COLLATE "C" NOT NULL,
    role      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    public    bytea NOT NULL,
    at        timestamptz NOT NULL,
    by        text COLLATE "C" NOT NULL,
    signer    text COLLATE "C" NOT NULL,
    signature bytea NOT NULL,
    UNIQUE (key_id, change)
);

-- The Merkle tree, in tiles of 256 hashes. Level 0 has the hashes of the leaves, each higher level the roots of the full tiles
-- below it. positions are the positions of the leaves, eight bytes each.
CREATE TABLE holdfast.tiles (
    level     integer NOT NULL,
    number    bigint NOT NULL,
    hashes    bytea NOT NULL,
    positions bytea,
    last_pos  bigint,
    PRIMARY KEY (level, number)
);

CREATE INDEX tiles_pos ON holdfast.tiles (last_pos) WHERE level = 0;

-- Signed heads of the tree, by the number of leaves that they cover.
CREATE TABLE holdfast.heads (
    size bigint PRIMARY KEY,
    pos  bigint NOT NULL,
    root bytea NOT NULL,
    note text COLLATE "C" NOT NULL,
    at   timestamptz NOT NULL
);

-- Workers, agents and supervisors

-- Which workers are there, and what each says about itself, as a JSON object.
-- There is no index on seen_at: without one, the frequent update of seen_at is a HOT update.
CREATE TABLE holdfast.workers (
    name        text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    body        text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, incarnation)
) WITH (fillfactor = 70);

-- Which process performs a periodic service, such as sweeping, and until when no other process does.
CREATE TABLE holdfast.duties (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Agents, by session: the task that each works on, the last one that it had, and the position up to which it has read.
CREATE TABLE holdfast.agents (
    name       text COLLATE "C" NOT NULL,
    session    text COLLATE "C" NOT NULL,
    focus      bigint,
    last       bigint,
    cursor     bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (name, session)
);

-- What supervisors know about the programs that they run, as JSON objects. A restarted supervisor reads it.
-- Rows are updated every few seconds by their key: without another index, that is a HOT update.
CREATE TABLE holdfast.runs (
    name       text COLLATE "C" PRIMARY KEY,
    body       text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
