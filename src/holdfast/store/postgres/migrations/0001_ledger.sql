-- The ledger. Payloads live in events and nowhere else: a job's row only says where it stands.

CREATE TABLE holdfast.meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Resolved policies, by content: a snapshot is a reference to a row that never changes.
CREATE TABLE holdfast.policies (
    id    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body  text COLLATE "C" NOT NULL UNIQUE,
    lease interval NOT NULL
);

-- What users set, by kind and by tier.
CREATE TABLE holdfast.settings (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  text COLLATE "C" NOT NULL,
    body  text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, name)
);

-- Every combination of kind, tier and a job's own settings that was ever enqueued, with the policy it has today.
CREATE TABLE holdfast.profiles (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    tier      text COLLATE "C" NOT NULL,
    override  text COLLATE "C" NOT NULL,
    policy_id integer NOT NULL REFERENCES holdfast.policies (id),
    UNIQUE (kind, tier, override)
);

CREATE SEQUENCE holdfast.job_id AS bigint;

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
    note                  text COLLATE "C",
    dedupe_key            text COLLATE "C",
    dedupe_forever        boolean NOT NULL DEFAULT false,
    correlation_id        text COLLATE "C",
    trace_id              text COLLATE "C",
    replay_of             bigint,
    CHECK (status IN ('queued', 'claimed', 'running', 'stalled', 'succeeded', 'failed', 'cancelled', 'dead_lettered')),
    CHECK ((status IN ('claimed', 'running')) = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result_rev IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- All ascending, so that one row comparison can say "after this place".
CREATE INDEX jobs_ready ON holdfast.jobs (queue, (-priority), available_at, id) WHERE status = 'queued';
CREATE INDEX jobs_active ON holdfast.jobs (id) WHERE status IN ('claimed', 'running', 'stalled');
CREATE INDEX jobs_ended ON holdfast.jobs (status, id) WHERE status IN ('failed', 'cancelled', 'dead_lettered');
CREATE INDEX jobs_replay ON holdfast.jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE UNIQUE INDEX jobs_dedupe ON holdfast.jobs (queue, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND (dedupe_forever OR status IN ('queued', 'claimed', 'running', 'stalled'));

CREATE SEQUENCE holdfast.event_pos AS bigint CACHE 1;

-- Append-only. pos is the one total order, drawn after the job's row was locked and written.
-- correlation_id is set on first events only, where the caller gave one.
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
    PRIMARY KEY (job_id, rev)
);

CREATE UNIQUE INDEX events_pos ON holdfast.events (pos);
CREATE INDEX events_correlation ON holdfast.events (correlation_id) WHERE correlation_id IS NOT NULL;
-- The five everyday types are found by time through the small index; what people search for by type and time is rare.
CREATE INDEX events_type ON holdfast.events (type, received_at)
    WHERE type NOT IN ('enqueued', 'claimed', 'started', 'heartbeat', 'succeeded');
CREATE INDEX events_time ON holdfast.events USING brin (received_at) WITH (autosummarize = on);

-- Answers to calls, for when the same call comes again.
CREATE TABLE holdfast.requests (
    actor      text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    verb       text COLLATE "C" NOT NULL,
    body_hash  bytea NOT NULL,
    answer     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (actor, request_id)
);

CREATE TABLE holdfast.queues (
    name      text COLLATE "C" PRIMARY KEY,
    paused_at timestamptz
);

-- Where each follower of the total order, and each slow walk through the table, has got to.
CREATE TABLE holdfast.cursors (
    name text COLLATE "C" PRIMARY KEY,
    pos  bigint NOT NULL
);
