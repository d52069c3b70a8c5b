-- The tables of a ledger.
--
-- A job is one row of `jobs`, which says where it stands. Its history is the events of the view `events`. An event is stored
-- in one of two forms: as a row of its own in `event_rows`, or, together with the events of other jobs that one statement
-- changed alike, in a row of `event_batches`. Enqueues, claims, starts, plain heartbeats and successes are batches; all other
-- events are rows.
--
-- No index depends on a column that heartbeats and successes change, so that their updates of `jobs` are HOT.
--
-- Tables that retention deletes from are vacuumed when 2 % of their rows are dead, not 20 %: a large table would otherwise grow by
-- a fifth before its free space is known.

CREATE TABLE holdfast.meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Resolved policies, by content. A row never changes, so a reference to it is a snapshot.
-- `token_tail` is what the policy wants signed; it ends the token of each lease. `check_after` is how long after a claim the
-- sweeper first has to look at it.
CREATE TABLE holdfast.policies (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body        text COLLATE "C" NOT NULL UNIQUE,
    lease       interval NOT NULL,
    check_after interval NOT NULL,
    token_tail  text COLLATE "C" NOT NULL
);

-- The settings of operators, by kind and by tier.
CREATE TABLE holdfast.settings (
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  text COLLATE "C" NOT NULL,
    body  text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, name)
);

-- The declarations of handlers, by kind: the queue of its jobs, fields of its policy, and the limits and labels of its jobs (`flow`, a JSON
-- object). The last worker that started wrote it.
CREATE TABLE holdfast.declarations (
    kind        text COLLATE "C" PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,
    body        text COLLATE "C" NOT NULL,
    flow        text COLLATE "C" NOT NULL DEFAULT '{}',
    declared_at timestamptz NOT NULL,
    declared_by text COLLATE "C" NOT NULL
);

-- Schedules. The body is a JSON object. `fire_at` is when the next firing is due; paused and finished schedules have none.
-- `run_at` is the first of the planned times before `next_at` that were all made. `made` has earlier runs of such times, as JSON.
CREATE TABLE holdfast.schedules (
    name       text COLLATE "C" PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL CHECK (source IN ('handler', 'operator')),
    created_at timestamptz NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL,
    paused_at  timestamptz,
    paused_by  text COLLATE "C",
    next_at    timestamptz,
    fire_at    timestamptz,
    last_at    timestamptz,
    last_job   bigint,
    last_error text COLLATE "C",
    fired      bigint NOT NULL,
    skipped    bigint NOT NULL,
    run_at   timestamptz,
    made       text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX schedules_fire ON holdfast.schedules (fire_at) WHERE fire_at IS NOT NULL;

-- Every combination of kind, tier and a job's own settings that was ever enqueued, with its current policy.
CREATE TABLE holdfast.profiles (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    tier      text COLLATE "C" NOT NULL,
    override  text COLLATE "C" NOT NULL,
    policy_id integer NOT NULL REFERENCES holdfast.policies (id),
    UNIQUE (kind, tier, override)
);

CREATE SEQUENCE holdfast.job_id AS bigint;

-- Columns are ordered by how often they change: those of the enqueue first, then those of the claim, then those that every
-- change writes. The log of an update leaves out what old and new row have in common at the beginning and at the end.
--
--   payload      the payload of the job's `enqueued` event, with the arguments. If later calls with its dedupe key have changed
--                the job, it has their values
--   first_payload  the payload of its `enqueued` event, if `payload` has other values
--   result       the payload of its `succeeded` event
--   enqueued_pos the batch with its `enqueued` event
--   claim_pos    the batch with its newest `claimed` event
--   last_pos     the position that its newest statement drew: the next one must draw a higher one
--   queued       whether its status is queued. Partial indexes use this column, which only claims and rare verbs change.
--   ended        its status, if that is failed, cancelled or dead_lettered
--   live_key     its dedupe key, as long as no other job may have the same one
--   key_until    until when a job with a window keeps its dedupe key also after its end. The next enqueue that wants the key
--                frees it after that
--   dependents   how many jobs were ever made to wait for it
--   waits_for    how many jobs it still waits for
--   checkpoint_rev  the revision of the heartbeat with its newest checkpoint
--   subqueue     the subqueue that it competes in, NULL for most jobs. The number is positive if the job draws on limits
--   group_id     the group that counts it. NULL if it joined none, or if a replay has taken its place.
CREATE TABLE holdfast.jobs (
    id                    bigint NOT NULL,
    created_at            timestamptz NOT NULL,
    enqueued_pos          bigint NOT NULL,
    replay_of             bigint,
    group_id              bigint,
    profile_id            integer NOT NULL,
    dedupe_forever        boolean NOT NULL DEFAULT false,
    key_until             timestamptz,
    kind                  text COLLATE "C" NOT NULL,
    payload               bytea NOT NULL,
    first_payload         bytea,
    dedupe_key            text COLLATE "C",
    correlation_id        text COLLATE "C",
    trace_id              text COLLATE "C",
    subqueue              bigint,

    queue                 text COLLATE "C" NOT NULL,
    priority              integer NOT NULL,
    dependents            integer NOT NULL DEFAULT 0,
    waits_for             integer NOT NULL DEFAULT 0,
    releases              integer NOT NULL DEFAULT 0,
    available_at          timestamptz NOT NULL,
    live_key              text COLLATE "C",
    last_error            bytea,
    note                  text COLLATE "C",
    ended                 text COLLATE "C",

    claim_pos             bigint,
    claimed_at            timestamptz,
    started_at            timestamptz,
    attempt               integer NOT NULL,
    policy_id             integer,
    queued                boolean NOT NULL,
    assist_requested      boolean NOT NULL DEFAULT false,
    undo_owed             integer NOT NULL DEFAULT 0,
    incarnation           text COLLATE "C",
    token                 text COLLATE "C",
    stage                 text COLLATE "C",
    progress              bigint,
    progressed_at         timestamptz,
    counter               bigint,
    checkpoint_rev        integer,
    stalled_at            timestamptz,
    revived_at            timestamptz,
    cancel_requested_at   timestamptz,
    stall_reason          text COLLATE "C",
    cancel_reason         text COLLATE "C",
    reason_code           text COLLATE "C",
    failure_stage         text COLLATE "C",

    last_beat_at          timestamptz,
    lease_expires_at      timestamptz,
    last_lease_expires_at timestamptz,
    owner                 text COLLATE "C",
    last_owner            text COLLATE "C",
    last_pos              bigint NOT NULL,
    updated_at            timestamptz NOT NULL,
    finished_at           timestamptz,
    rev                   integer NOT NULL,
    status                text COLLATE "C" NOT NULL,
    phase                 text COLLATE "C",
    result                bytea,

    CHECK (queued = (status = 'queued')),
    CHECK ((status IN ('claimed', 'running')) = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result IS NOT NULL)),
    CHECK (status IN ('queued', 'claimed', 'running', 'stalled', 'succeeded') OR ended = status)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

ALTER TABLE holdfast.jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (id) WITH (fillfactor = 50);
-- All ascending, so that one row comparison can say "after this place".
CREATE INDEX jobs_ready ON holdfast.jobs (queue, (-priority), available_at, id) WHERE queued AND subqueue IS NULL;
CREATE INDEX jobs_subqueue ON holdfast.jobs (queue, (-priority), subqueue, available_at, id) WHERE queued AND subqueue IS NOT NULL;
CREATE INDEX jobs_delayed ON holdfast.jobs (queue, available_at)
    WHERE queued AND subqueue IS NULL AND available_at > created_at;
CREATE INDEX jobs_ended ON holdfast.jobs (ended, id) WHERE ended IS NOT NULL;
CREATE INDEX jobs_replay ON holdfast.jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX jobs_correlation ON holdfast.jobs (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX jobs_waiting ON holdfast.jobs (id) WHERE waits_for > 0;
CREATE INDEX jobs_owing ON holdfast.jobs (id) WHERE undo_owed > 0;
CREATE UNIQUE INDEX jobs_dedupe ON holdfast.jobs (queue, live_key) WHERE live_key IS NOT NULL;
CREATE INDEX jobs_group ON holdfast.jobs (group_id, id) WHERE group_id IS NOT NULL;

-- Groups of jobs. The body is a JSON object with the follow-up jobs. The counts lack the changes in `group_changes`.
--
--   dead_at      when the first job that did not succeed was counted
--   done_at      when all jobs had ended and none could join any more
--   then_joins, on_dead_joins  the groups that its follow-up jobs join
CREATE TABLE holdfast.groups (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text COLLATE "C" NOT NULL UNIQUE,
    body          text COLLATE "C" NOT NULL,
    created_at    timestamptz NOT NULL,
    created_by    text COLLATE "C" NOT NULL,
    closed_at     timestamptz,
    closed_by     text COLLATE "C",
    cancelled_at  timestamptz,
    dead_at       timestamptz,
    done_at       timestamptz,
    then_job      bigint,
    on_dead_job   bigint,
    last_error    text COLLATE "C",
    joined        bigint NOT NULL DEFAULT 0,
    succeeded     bigint NOT NULL DEFAULT 0,
    failed        bigint NOT NULL DEFAULT 0,
    cancelled     bigint NOT NULL DEFAULT 0,
    dead_lettered bigint NOT NULL DEFAULT 0,
    then_joins    text COLLATE "C",
    on_dead_joins text COLLATE "C"
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX groups_unfinished ON holdfast.groups (id) WHERE done_at IS NULL;
CREATE INDEX groups_troubled ON holdfast.groups (id) WHERE dead_at IS NOT NULL OR last_error IS NOT NULL;
CREATE INDEX groups_then_joins ON holdfast.groups (then_joins) WHERE then_job IS NULL AND then_joins IS NOT NULL;
CREATE INDEX groups_on_dead_joins ON holdfast.groups (on_dead_joins) WHERE on_dead_job IS NULL AND on_dead_joins IS NOT NULL;

-- What statements have changed in the counts of groups, until it is added to them.
CREATE TABLE holdfast.group_changes (
    group_id      bigint NOT NULL,
    joined        integer NOT NULL DEFAULT 0,
    succeeded     integer NOT NULL DEFAULT 0,
    failed        integer NOT NULL DEFAULT 0,
    cancelled     integer NOT NULL DEFAULT 0,
    dead_lettered integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX group_changes_group ON holdfast.group_changes (group_id);

-- Queued jobs, each by one of the two indexes.
CREATE VIEW holdfast.queued_jobs AS
SELECT * FROM holdfast.jobs WHERE queued AND subqueue IS NULL
UNION ALL
SELECT * FROM holdfast.jobs WHERE queued AND subqueue IS NOT NULL;

-- Which job waits, or has waited, for which. If a job was replayed meanwhile, for the replay.
CREATE TABLE holdfast.dependencies (
    job_id bigint NOT NULL,
    on_id  bigint NOT NULL,
    PRIMARY KEY (job_id, on_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX dependencies_on ON holdfast.dependencies (on_id, job_id);

-- The one total order of events and key changes. A statement draws one number for all events that it records; they take the
-- numbers from there on. It records 2,048 at most.
CREATE SEQUENCE holdfast.event_pos AS bigint INCREMENT BY 2048 CACHE 1;

-- Events that are not in a batch. `pos` was drawn after the job's row was locked. `claim_pos` is the claim of the attempt.
-- `at` is the time of the signer, if there is one.
CREATE TABLE holdfast.event_rows (
    pos            bigint NOT NULL,
    job_id         bigint NOT NULL,
    received_at    timestamptz NOT NULL,
    claim_pos      bigint,
    rev            integer NOT NULL,
    attempt        integer NOT NULL,
    policy_id      integer,
    type           text COLLATE "C" NOT NULL,
    from_status    text COLLATE "C",
    to_status      text COLLATE "C" NOT NULL,
    actor          text COLLATE "C" NOT NULL,
    reason         text COLLATE "C",
    request_id     text COLLATE "C",
    cause          text COLLATE "C",
    payload        bytea,
    at             timestamptz,
    key_id         text COLLATE "C",
    signature      bytea,
    statement      bytea,
    PRIMARY KEY (job_id, rev)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE UNIQUE INDEX event_rows_pos ON holdfast.event_rows (pos);
CREATE INDEX event_rows_type ON holdfast.event_rows (type, received_at) WHERE type <> 'heartbeat';
CREATE INDEX event_rows_time ON holdfast.event_rows USING brin (received_at) WITH (autosummarize = on);

-- Events of one type that one statement recorded, one for each of `jobs`. The first has the position `pos`, the next ones follow.
-- A batch of claims with `starts` has two events for each job: `claimed` and, at the next position, `started`.
-- Every enqueue and every claim is in a batch, even of one job.
--
--   claim_pos    the claim of the jobs; NULL in claims themselves and in enqueues
--   size         the number of events
--   rev, attempt, policy_id, received_at   the values of every job or, if they differ, of one of them. `revs`, `attempts`,
--                `policy_ids` and `times` then have one for each job.
--   nonce        of an enqueue that was a transaction of its own: finds its jobs if its answer was lost
CREATE TABLE holdfast.event_batches (
    pos         bigint PRIMARY KEY,
    received_at timestamptz NOT NULL,
    claim_pos   bigint,
    size        integer NOT NULL,
    rev         integer NOT NULL,
    attempt     integer NOT NULL,
    policy_id   integer,
    starts      boolean NOT NULL DEFAULT false,
    type        text COLLATE "C" NOT NULL CHECK (type IN ('enqueued', 'claimed', 'started', 'heartbeat', 'succeeded')),
    from_status text COLLATE "C",
    to_status   text COLLATE "C" NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    reason      text COLLATE "C",
    request_id  text COLLATE "C",
    cause       text COLLATE "C",
    nonce       text COLLATE "C",
    jobs        bigint[] NOT NULL,
    revs        integer[],
    attempts    integer[],
    policy_ids  integer[],
    times       timestamptz[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

ALTER TABLE holdfast.event_batches
    ALTER jobs SET STORAGE EXTERNAL, ALTER revs SET STORAGE EXTERNAL, ALTER attempts SET STORAGE EXTERNAL,
    ALTER policy_ids SET STORAGE EXTERNAL, ALTER times SET STORAGE EXTERNAL;
CREATE INDEX event_batches_claim ON holdfast.event_batches (claim_pos, pos) WHERE claim_pos IS NOT NULL;
CREATE INDEX event_batches_time ON holdfast.event_batches USING brin (received_at) WITH (autosummarize = on);

-- Claims of which a job may still be held or stalled. `check_at` is when the sweeper has to look at it next.
CREATE TABLE holdfast.open_claims (
    pos      bigint PRIMARY KEY,
    check_at timestamptz NOT NULL,
    size     integer NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Every event of every job, for people and their tools. The functions below read the events of some jobs, or of some positions,
-- without unpacking every batch.
CREATE VIEW holdfast.events AS
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
UNION ALL
SELECT b.pos + (i.n - 1) * CASE WHEN b.starts THEN 2 ELSE 1 END, i.job_id, coalesce(i.rev, b.rev), b.type,
    coalesce(i.received_at, b.received_at), NULL, b.actor, coalesce(i.attempt, b.attempt), b.from_status, b.to_status, b.reason,
    b.request_id, b.cause, CASE b.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
    coalesce(i.policy_id, b.policy_id), j.correlation_id, j.trace_id, NULL, NULL, NULL
FROM holdfast.event_batches b
CROSS JOIN LATERAL unnest(b.jobs, b.revs, b.attempts, b.policy_ids, b.times)
    WITH ORDINALITY AS i (job_id, rev, attempt, policy_id, received_at, n)
JOIN holdfast.jobs j ON j.id = i.job_id
UNION ALL
SELECT b.pos + 2 * i.n - 1, i.job_id, coalesce(i.rev, b.rev) + 1, 'started', coalesce(i.received_at, b.received_at), NULL, b.actor,
    coalesce(i.attempt, b.attempt), 'claimed', 'running', NULL, b.request_id, b.cause, NULL, NULL, j.correlation_id, j.trace_id,
    NULL, NULL, NULL
FROM holdfast.event_batches b
CROSS JOIN LATERAL unnest(b.jobs, b.revs, b.attempts, b.times) WITH ORDINALITY AS i (job_id, rev, attempt, received_at, n)
JOIN holdfast.jobs j ON j.id = i.job_id
WHERE b.starts;

-- In the functions and in the next view, OFFSET 0 makes the planner look up each row by its key, without regard to statistics.

-- The events after one position and up to another.
CREATE FUNCTION holdfast.events_between(after bigint, until bigint) RETURNS SETOF holdfast.events LANGUAGE sql STABLE AS $$
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.pos > after AND e.pos <= until
UNION ALL
SELECT p.pos, i.job_id, coalesce(i.rev, b.rev) + step.n, CASE step.n WHEN 1 THEN 'started' ELSE b.type END,
    coalesce(i.received_at, b.received_at), NULL::timestamptz, b.actor, coalesce(i.attempt, b.attempt),
    CASE step.n WHEN 1 THEN 'claimed' ELSE b.from_status END, CASE step.n WHEN 1 THEN 'running' ELSE b.to_status END,
    CASE step.n WHEN 0 THEN b.reason END, b.request_id, b.cause,
    CASE b.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
    CASE step.n WHEN 0 THEN coalesce(i.policy_id, b.policy_id) END, j.correlation_id, j.trace_id,
    NULL::text, NULL::bytea, NULL::bytea
FROM holdfast.event_batches b
CROSS JOIN LATERAL unnest(b.jobs, b.revs, b.attempts, b.policy_ids, b.times)
    WITH ORDINALITY AS i (job_id, rev, attempt, policy_id, received_at, n)
CROSS JOIN (VALUES (0), (1)) AS step (n)
CROSS JOIN LATERAL (SELECT b.pos + (i.n - 1) * (1 + b.starts::integer) + step.n) AS p (pos)
CROSS JOIN LATERAL (
    SELECT payload, first_payload, result, correlation_id, trace_id FROM holdfast.jobs WHERE id = i.job_id OFFSET 0) AS j
WHERE b.pos > after - 2048 AND b.pos <= until AND step.n <= b.starts::integer AND p.pos > after AND p.pos <= until
$$;

-- The events of some jobs. Earlier claims of a job are found by the events that ended them.
CREATE FUNCTION holdfast.job_events(wanted bigint[]) RETURNS SETOF holdfast.events LANGUAGE sql STABLE AS $$
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
FROM holdfast.event_rows e JOIN holdfast.jobs j ON j.id = e.job_id
WHERE e.job_id = ANY (wanted)
UNION ALL
SELECT b.pos + (i.n - 1) * (1 + b.starts::integer) + step.n, j.id, coalesce(b.revs[i.n], b.rev) + step.n,
    CASE step.n WHEN 1 THEN 'started' ELSE b.type END, coalesce(b.times[i.n], b.received_at), NULL::timestamptz, b.actor,
    coalesce(b.attempts[i.n], b.attempt), CASE step.n WHEN 1 THEN 'claimed' ELSE b.from_status END,
    CASE step.n WHEN 1 THEN 'running' ELSE b.to_status END, CASE step.n WHEN 0 THEN b.reason END, b.request_id, b.cause,
    CASE b.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
    CASE step.n WHEN 0 THEN coalesce(b.policy_ids[i.n], b.policy_id) END, j.correlation_id, j.trace_id,
    NULL::text, NULL::bytea, NULL::bytea
FROM (
    SELECT id, enqueued_pos AS pos FROM holdfast.jobs WHERE id = ANY (wanted)
    UNION ALL
    SELECT c.id, b.pos
    FROM (
        SELECT id, claim_pos FROM holdfast.jobs WHERE id = ANY (wanted)
        UNION
        SELECT job_id, claim_pos FROM holdfast.event_rows WHERE job_id = ANY (wanted)
    ) AS c
    CROSS JOIN LATERAL (
        SELECT c.claim_pos AS pos
        UNION ALL
        SELECT l.pos FROM holdfast.event_batches l WHERE l.claim_pos = c.claim_pos
    ) AS b
    WHERE c.claim_pos IS NOT NULL
) AS at
CROSS JOIN LATERAL (SELECT * FROM holdfast.event_batches WHERE pos = at.pos OFFSET 0) AS b
CROSS JOIN LATERAL (SELECT array_position(b.jobs, at.id)) AS i (n)
CROSS JOIN LATERAL (
    SELECT id, payload, first_payload, result, correlation_id, trace_id FROM holdfast.jobs WHERE id = at.id OFFSET 0) AS j
CROSS JOIN (VALUES (0), (1)) AS step (n)
WHERE i.n IS NOT NULL AND step.n <= b.starts::integer
$$;

-- Jobs that are held or stalled.
CREATE VIEW holdfast.active_jobs AS
SELECT j.* FROM holdfast.open_claims c
CROSS JOIN LATERAL (SELECT jobs FROM holdfast.event_batches WHERE pos = c.pos OFFSET 0) AS b
CROSS JOIN LATERAL unnest(b.jobs) AS i (job_id)
CROSS JOIN LATERAL (SELECT * FROM holdfast.jobs WHERE id = i.job_id OFFSET 0) AS j
WHERE j.claim_pos = c.pos AND j.status IN ('claimed', 'running', 'stalled');

-- Answers to calls with a request id, for when the same call comes again.
CREATE TABLE holdfast.requests (
    actor      text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    verb       text COLLATE "C" NOT NULL,
    body_hash  bytea NOT NULL,
    answer     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (actor, request_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX requests_time ON holdfast.requests (created_at);

-- Queues that are or were paused, have settings, or have subqueues. `settings` is a JSON object. A claim of a queue with
-- `has_flow` looks at subqueues.
CREATE TABLE holdfast.queues (
    name         text COLLATE "C" PRIMARY KEY,
    paused_at    timestamptz,
    paused_by    text COLLATE "C",
    pause_reason text COLLATE "C",
    settings     text COLLATE "C",
    has_flow     boolean NOT NULL DEFAULT false
);

-- Limits that jobs draw on. The body is a JSON object.
CREATE TABLE holdfast.limits (
    name       text COLLATE "C" PRIMARY KEY,
    body       text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text COLLATE "C" NOT NULL
);

-- The keys of limits. `body` has the numbers of this key, if they differ from those of the limit. `used` is how many units are in
-- use at most: claims raise it, and it is counted anew when it reaches the limit. `tokens` is what was left of the rate
-- at `filled_at`.
CREATE TABLE holdfast.limit_keys (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    body      text COLLATE "C",
    used      bigint NOT NULL DEFAULT 0,
    tokens    double precision NOT NULL DEFAULT 1e300,
    filled_at timestamptz NOT NULL DEFAULT 'epoch',
    UNIQUE (name, key)
) WITH (fillfactor = 50);

-- Which claims have drawn on a key: their jobs and the units of each. A job uses its units while it has this claim and is held or
-- stalled. So nothing has to be given back when a job ends in any way.
CREATE TABLE holdfast.slots (
    key_id    bigint NOT NULL,
    claim_pos bigint NOT NULL,
    jobs      bigint[] NOT NULL,
    units     bigint[] NOT NULL,
    PRIMARY KEY (key_id, claim_pos)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Which workers may have a job: those that serve its kind and have the labels. Of a job for one worker, the first label is that
-- worker's own. `worker` is that label, '' without one: a claim looks up the routes of its worker, and not those of others.
CREATE TABLE holdfast.routes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    requires   text[] COLLATE "C" NOT NULL,
    worker     text COLLATE "C" NOT NULL
        GENERATED ALWAYS AS (CASE WHEN starts_with(requires[1], 'worker:') THEN requires[1] ELSE '' END) STORED,
    UNIQUE (queue, worker, kind, requires)
);

CREATE SEQUENCE holdfast.subqueue_id AS bigint;

-- Subqueues. Jobs of a queue that have the same priority, route, partition and draws compete in one. `rank` is minus the priority.
-- `draws` is a JSON list of keys and units.
--
--   is_open      claims look at it. It may have no job that may start: the claim that finds this closes it
--   shut_key     the key whose limit it waits for
--   shut_at      since when it has waited for a limit. It keeps this place in line until a job of it has started
--   until        when it is opened again, if nothing opens it before
--   seen_at      when a process has last asked for its number
CREATE TABLE holdfast.subqueues (
    id        bigint PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    rank      integer NOT NULL,
    route     bigint NOT NULL,
    partition text COLLATE "C" NOT NULL,
    draws     text COLLATE "C" NOT NULL,
    seen_at   timestamptz NOT NULL,
    is_open   boolean NOT NULL DEFAULT false,
    shut_key  bigint,
    shut_at   timestamptz,
    until     timestamptz,
    UNIQUE (queue, rank, route, partition, draws)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX subqueues_open ON holdfast.subqueues (queue, route, rank, partition, id) WHERE is_open;
CREATE INDEX subqueues_shut ON holdfast.subqueues (shut_key, route, rank, shut_at, id) WHERE shut_key IS NOT NULL;
CREATE INDEX subqueues_until ON holdfast.subqueues (until) WHERE until IS NOT NULL;
CREATE INDEX subqueues_seen ON holdfast.subqueues (seen_at) WHERE NOT is_open;

-- Subqueues that have got a job, and those of which a job no longer uses its units. A claim works through these notes, so that
-- neither an enqueue nor an end has to wait for the row of a subqueue.
CREATE TABLE holdfast.subqueue_notes (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queued bigint[],
    freed  bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

-- Named positions: of followers of the total order, and of walks through a table.
CREATE TABLE holdfast.cursors (
    name text COLLATE "C" PRIMARY KEY,
    pos  bigint NOT NULL
);

-- Which of many processes performs a ticking service, and until when no other one does.
CREATE TABLE holdfast.duties (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Workers. The body is a JSON object that the worker wrote. There is no index on seen_at, so that its updates are HOT.
CREATE TABLE holdfast.workers (
    name        text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    body        text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, incarnation)
) WITH (fillfactor = 70);

-- Supervised programs. The body is a JSON object. Rows are updated every few seconds; without another index that is HOT.
CREATE TABLE holdfast.runs (
    name       text COLLATE "C" PRIMARY KEY,
    body       text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Each session of an agent: the task it works on, the last one it had, and how far it has read.
CREATE TABLE holdfast.agents (
    name       text COLLATE "C" NOT NULL,
    session    text COLLATE "C" NOT NULL,
    focus      bigint,
    last       bigint,
    cursor     bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (name, session)
);

-- The sinks of the outbox: how far each has been told, and its failures. The outbox itself is the total order of events.
-- A sink of heads gets the heads of the sealed log instead; its `pos` is the size of the last one.
CREATE TABLE holdfast.sinks (
    name       text COLLATE "C" PRIMARY KEY,
    of_heads   boolean NOT NULL,
    pos        bigint NOT NULL,
    failures   integer NOT NULL DEFAULT 0,
    retry_at   timestamptz,
    dead_at    timestamptz,
    last_error text COLLATE "C",
    updated_at timestamptz NOT NULL
);

-- The keys that may sign events, from which position on, and until which. They are in the same total order as the events.
-- `signer` is the key that vouches for the change; the first key of a ledger vouches for itself.
CREATE TABLE holdfast.key_log (
    pos       bigint PRIMARY KEY,
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

-- The tree of the sealed log: hashes by the 256. Those of level 0 are of the leaves, those of each level above are the roots of
-- the full tiles below. `positions` are those of the leaves, eight bytes each.
CREATE TABLE holdfast.tiles (
    level     integer NOT NULL,
    number    bigint NOT NULL,
    hashes    bytea NOT NULL,
    positions bytea,
    last_pos  bigint,
    PRIMARY KEY (level, number)
);

CREATE INDEX tiles_pos ON holdfast.tiles (last_pos) WHERE level = 0;

-- Signed tree heads.
CREATE TABLE holdfast.heads (
    size bigint PRIMARY KEY,
    pos  bigint NOT NULL,
    root bytea NOT NULL,
    note text COLLATE "C" NOT NULL,
    at   timestamptz NOT NULL
);

-- Tokens of the HTTP server. Only a hash of the secret is stored. `queues` and `act_as` are JSON lists of patterns.
CREATE TABLE holdfast.tokens (
    id           text COLLATE "C" PRIMARY KEY,
    hash         bytea NOT NULL,
    role         text COLLATE "C" NOT NULL CHECK (role IN ('reader', 'client', 'worker', 'operator', 'admin')),
    name         text COLLATE "C" NOT NULL,
    queues       text COLLATE "C" NOT NULL,
    act_as       text COLLATE "C" NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text COLLATE "C" NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text COLLATE "C"
);

-- Browser sessions, by the hash of their secret. Those of a token have its role, name and patterns. Those without a token belong
-- to persons whom an identity provider has signed in. `expires_at` is moved by requests.
CREATE TABLE holdfast.sessions (
    hash       bytea PRIMARY KEY,
    token_id   text COLLATE "C",
    role       text COLLATE "C" NOT NULL CHECK (role IN ('reader', 'client', 'worker', 'operator', 'admin')),
    name       text COLLATE "C" NOT NULL,
    queues     text COLLATE "C" NOT NULL,
    act_as     text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Codes that each begin one session of their token, by the hash of the code.
CREATE TABLE holdfast.login_codes (
    hash       bytea PRIMARY KEY,
    token_id   text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL
);
-- How many jobs of a kind a queue has in each status, as of a position: the `pos` of `history_progress`.
CREATE TABLE holdfast.totals (
    queue  text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    n      bigint NOT NULL,
    PRIMARY KEY (queue, kind, status)
) WITH (fillfactor = 50);

-- What happened in each minute and each hour, to all jobs, to those of a queue and to those of a kind, and what ever happened to all
-- jobs and to those of a kind, at time 0. The body is a JSON object: counts of events, the change of the number of queued jobs, and
-- histograms of waits and runs. A histogram is its sum and the number of times of each bucket that has any, in microseconds.
CREATE TABLE holdfast.history (
    step  text COLLATE "C" NOT NULL CHECK (step IN ('minute', 'hour', 'ever')),
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('all', 'queue', 'kind')),
    name  text COLLATE "C" NOT NULL,
    at    timestamptz NOT NULL,
    body  text COLLATE "C" NOT NULL,
    PRIMARY KEY (step, scope, name, at)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX history_time ON holdfast.history (step, at);

-- The bucket of a time: the first of these edges that is not less, or the last one.
CREATE FUNCTION holdfast.edge_of(us bigint, edges bigint[]) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN us IS NOT NULL THEN edges[least(width_bucket(us - 1, edges) + 1, cardinality(edges))] END
$$;

-- The queues and kinds that have a history of their own. All others share the one with an empty name.
CREATE TABLE holdfast.history_names (
    scope   text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (scope, name)
);

-- How far totals and history have come: one row.
--
--   pos          all events up to this position are counted
--   at           the time of the last of them, or when there were no others
--   since_at     the history is complete from this time on
--   deletions    how often jobs were deleted that had events after `pos`. Those are not counted any more.
CREATE TABLE holdfast.history_progress (
    id        integer PRIMARY KEY CHECK (id = 1),
    pos       bigint NOT NULL DEFAULT 0,
    at        timestamptz,
    since_at  timestamptz,
    deletions bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
