-- The tables of a ledger.
--
-- A job is one row of `holdfast_jobs`, which says where it stands. Its history is the events of the view `holdfast_events`. An event
-- is stored in one of two forms: as a row of its own in `holdfast_event_rows`, or, together with the events of other jobs that one
-- statement changed alike, in a row of `holdfast_event_batches`. Enqueues, claims, starts, plain heartbeats and successes are batches; all other
-- events are rows.
--
-- No index depends on a column that heartbeats and successes change. Times are microseconds since 1970, UTC. Lists are JSON.

CREATE TABLE holdfast_meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Resolved policies, by content. A row never changes, so a reference to it is a snapshot.
-- `token_tail` is what the policy wants signed; it ends the token of each lease. `check_after_us` is how long after a claim the
-- sweeper first has to look at it.
CREATE TABLE holdfast_policies (
    id             INTEGER PRIMARY KEY,
    body           TEXT NOT NULL UNIQUE,
    lease_us       INTEGER NOT NULL,
    check_after_us INTEGER NOT NULL,
    token_tail     TEXT NOT NULL
) STRICT;

-- The settings of operators, by kind and by tier.
CREATE TABLE holdfast_settings (
    scope TEXT NOT NULL CHECK (scope IN ('kind', 'tier')),
    name  TEXT NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- The declarations of handlers, by kind: the queue of its jobs, fields of its policy, and the limits and labels of its jobs (`flow`, a JSON
-- object). The last worker that started wrote it.
CREATE TABLE holdfast_declarations (
    kind        TEXT PRIMARY KEY,
    queue       TEXT NOT NULL,
    body        TEXT NOT NULL,
    flow        TEXT NOT NULL DEFAULT '{}',
    declared_at INTEGER NOT NULL,
    declared_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Schedules. The body is a JSON object. `fire_at` is when the next firing is due; paused and finished schedules have none.
-- `run_at` is the first of the planned times before `next_at` that were all made. `made` has earlier runs of such times, as JSON.
CREATE TABLE holdfast_schedules (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    body       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('handler', 'operator')),
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    paused_at  INTEGER,
    paused_by  TEXT,
    next_at    INTEGER,
    fire_at    INTEGER,
    last_at    INTEGER,
    last_job   INTEGER,
    last_error TEXT,
    fired      INTEGER NOT NULL,
    skipped    INTEGER NOT NULL,
    run_at   INTEGER,
    made       TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_schedules_fire ON holdfast_schedules (fire_at) WHERE fire_at IS NOT NULL;

-- Every combination of kind, tier and a job's own settings that was ever enqueued, with its current policy.
CREATE TABLE holdfast_profiles (
    id        INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    tier      TEXT NOT NULL,
    override  TEXT NOT NULL,
    policy_id INTEGER NOT NULL REFERENCES holdfast_policies (id),
    UNIQUE (kind, tier, override)
) STRICT;

-- The columns of the enqueue, of the claim, and those that every change writes.
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
CREATE TABLE holdfast_jobs (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at            INTEGER NOT NULL,
    enqueued_pos          INTEGER NOT NULL,
    replay_of             INTEGER,
    group_id              INTEGER,
    profile_id            INTEGER NOT NULL,
    dedupe_forever        INTEGER NOT NULL DEFAULT 0,
    key_until             INTEGER,
    kind                  TEXT NOT NULL,
    payload               BLOB NOT NULL,
    first_payload         BLOB,
    dedupe_key            TEXT,
    correlation_id        TEXT,
    trace_id              TEXT,
    subqueue              INTEGER,

    queue                 TEXT NOT NULL,
    priority              INTEGER NOT NULL,
    dependents            INTEGER NOT NULL DEFAULT 0,
    waits_for             INTEGER NOT NULL DEFAULT 0,
    releases              INTEGER NOT NULL DEFAULT 0,
    available_at          INTEGER NOT NULL,
    live_key              TEXT,
    last_error            BLOB,
    note                  TEXT,
    ended                 TEXT,

    claim_pos             INTEGER,
    claimed_at            INTEGER,
    started_at            INTEGER,
    attempt               INTEGER NOT NULL,
    policy_id             INTEGER,
    queued                INTEGER NOT NULL,
    assist_requested      INTEGER NOT NULL DEFAULT 0,
    undo_owed             INTEGER NOT NULL DEFAULT 0,
    incarnation           TEXT,
    token                 TEXT,
    stage                 TEXT,
    progress              INTEGER,
    progressed_at         INTEGER,
    counter               INTEGER,
    checkpoint_rev        INTEGER,
    stalled_at            INTEGER,
    revived_at            INTEGER,
    cancel_requested_at   INTEGER,
    stall_reason          TEXT,
    cancel_reason         TEXT,
    reason_code           TEXT,
    failure_stage         TEXT,

    last_beat_at          INTEGER,
    lease_expires_at      INTEGER,
    last_lease_expires_at INTEGER,
    owner                 TEXT,
    last_owner            TEXT,
    last_pos              INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    finished_at           INTEGER,
    rev                   INTEGER NOT NULL,
    status                TEXT NOT NULL,
    phase                 TEXT,
    result                BLOB,

    CHECK (queued = (status = 'queued')),
    CHECK ((status = 'claimed' OR status = 'running') = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CHECK ((status = 'succeeded') = (result IS NOT NULL)),
    CHECK (ended IS NULL OR (ended = status AND finished_at IS NOT NULL))
) STRICT;

-- A list of values in a constraint or in the condition of an index would be built anew for every statement.
CREATE INDEX holdfast_jobs_ready ON holdfast_jobs (queue, priority DESC, available_at, id) WHERE queued AND subqueue IS NULL;
CREATE INDEX holdfast_jobs_subqueue ON holdfast_jobs (queue, priority DESC, subqueue, available_at, id)
    WHERE queued AND subqueue IS NOT NULL;
CREATE INDEX holdfast_jobs_delayed ON holdfast_jobs (queue, available_at)
    WHERE queued AND subqueue IS NULL AND available_at > created_at;
CREATE INDEX holdfast_jobs_ended ON holdfast_jobs (ended, id) WHERE ended IS NOT NULL;
CREATE INDEX holdfast_jobs_replay ON holdfast_jobs (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX holdfast_jobs_correlation ON holdfast_jobs (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX holdfast_jobs_waiting ON holdfast_jobs (id) WHERE waits_for > 0;
CREATE INDEX holdfast_jobs_owing ON holdfast_jobs (id) WHERE undo_owed > 0;
CREATE UNIQUE INDEX holdfast_jobs_dedupe ON holdfast_jobs (queue, live_key) WHERE live_key IS NOT NULL;
CREATE INDEX holdfast_jobs_group ON holdfast_jobs (group_id, id) WHERE group_id IS NOT NULL;

-- Groups of jobs. The body is a JSON object with the follow-up jobs. The counts lack the changes in `group_changes`.
--
--   dead_at      when the first job that did not succeed was counted
--   done_at      when all jobs had ended and none could join any more
--   then_joins, on_dead_joins  the groups that its follow-up jobs join
CREATE TABLE holdfast_groups (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    body          TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    created_by    TEXT NOT NULL,
    closed_at     INTEGER,
    closed_by     TEXT,
    cancelled_at  INTEGER,
    dead_at       INTEGER,
    done_at       INTEGER,
    then_job      INTEGER,
    on_dead_job   INTEGER,
    last_error    TEXT,
    joined        INTEGER NOT NULL DEFAULT 0,
    succeeded     INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    cancelled     INTEGER NOT NULL DEFAULT 0,
    dead_lettered INTEGER NOT NULL DEFAULT 0,
    then_joins    TEXT,
    on_dead_joins TEXT
) STRICT;

CREATE INDEX holdfast_groups_unfinished ON holdfast_groups (id) WHERE done_at IS NULL;
CREATE INDEX holdfast_groups_troubled ON holdfast_groups (id) WHERE dead_at IS NOT NULL OR last_error IS NOT NULL;
CREATE INDEX holdfast_groups_then_joins ON holdfast_groups (then_joins) WHERE then_job IS NULL AND then_joins IS NOT NULL;
CREATE INDEX holdfast_groups_on_dead_joins ON holdfast_groups (on_dead_joins)
    WHERE on_dead_job IS NULL AND on_dead_joins IS NOT NULL;

-- What statements have changed in the counts of groups, until it is added to them.
CREATE TABLE holdfast_group_changes (
    group_id      INTEGER NOT NULL,
    joined        INTEGER NOT NULL DEFAULT 0,
    succeeded     INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    cancelled     INTEGER NOT NULL DEFAULT 0,
    dead_lettered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX holdfast_group_changes_group ON holdfast_group_changes (group_id);

-- Which job waits, or has waited, for which. If a job was replayed meanwhile, for the replay.
CREATE TABLE holdfast_dependencies (
    job_id INTEGER NOT NULL,
    on_id  INTEGER NOT NULL,
    PRIMARY KEY (job_id, on_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_dependencies_on ON holdfast_dependencies (on_id, job_id);

-- The last position of the one total order of events and key changes.
CREATE TABLE holdfast_positions (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO holdfast_positions VALUES (0);

-- Events that are not in a batch. `claim_pos` is the claim of the attempt.
-- `at` is the time of the signer, if there is one.
CREATE TABLE holdfast_event_rows (
    pos            INTEGER PRIMARY KEY,
    job_id         INTEGER NOT NULL,
    received_at    INTEGER NOT NULL,
    claim_pos      INTEGER,
    rev            INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    policy_id      INTEGER,
    type           TEXT NOT NULL,
    from_status    TEXT,
    to_status      TEXT NOT NULL,
    actor          TEXT NOT NULL,
    reason         TEXT,
    request_id     TEXT,
    cause          TEXT,
    payload        BLOB,
    at             INTEGER,
    key_id         TEXT,
    signature      BLOB,
    statement      BLOB
) STRICT;

CREATE UNIQUE INDEX holdfast_event_rows_job ON holdfast_event_rows (job_id, rev);
CREATE INDEX holdfast_event_rows_type ON holdfast_event_rows (type, received_at) WHERE type <> 'heartbeat';

-- Events of one type that one statement recorded, one for each of `jobs`. The first has the position `pos`, the next ones follow.
-- A batch of claims with `starts` has two events for each job: `claimed` and, at the next position, `started`.
-- Every enqueue and every claim is in a batch, even of one job.
--
--   claim_pos    the claim of the jobs; NULL in claims themselves and in enqueues
--   size         the number of events
--   rev, attempt, policy_id, received_at   the values of every job or, if they differ, of one of them. `revs`, `attempts`,
--                `policy_ids` and `times` then have one for each job.
CREATE TABLE holdfast_event_batches (
    pos         INTEGER PRIMARY KEY,
    received_at INTEGER NOT NULL,
    claim_pos   INTEGER,
    size        INTEGER NOT NULL,
    rev         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    policy_id   INTEGER,
    starts      INTEGER NOT NULL DEFAULT 0,
    type        TEXT NOT NULL,
    from_status TEXT,
    to_status   TEXT NOT NULL,
    actor       TEXT NOT NULL,
    reason      TEXT,
    request_id  TEXT,
    cause       TEXT,
    jobs        TEXT NOT NULL,
    revs        TEXT,
    attempts    TEXT,
    policy_ids  TEXT,
    times       TEXT
) STRICT;

CREATE INDEX holdfast_event_batches_claim ON holdfast_event_batches (claim_pos, pos) WHERE claim_pos IS NOT NULL;

-- Claims of which a job may still be held or stalled. `check_at` is when the sweeper has to look at it next.
CREATE TABLE holdfast_open_claims (
    pos      INTEGER PRIMARY KEY,
    check_at INTEGER NOT NULL,
    size     INTEGER NOT NULL
) STRICT;

-- The times of each block of some hundred events, by position: those after after_pos, up to pos. The newest are in no block yet.
-- A clock may be set back, so times do not always rise with positions; high_at, the latest time up to the end of the block, does.
CREATE TABLE holdfast_times (
    pos       INTEGER PRIMARY KEY,
    after_pos INTEGER NOT NULL,
    min_at    INTEGER NOT NULL,
    max_at    INTEGER NOT NULL,
    high_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX holdfast_times_high ON holdfast_times (high_at);

-- Every event of every job, for people and their tools.
CREATE VIEW holdfast_events AS
SELECT e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
    e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement
FROM holdfast_event_rows e JOIN holdfast_jobs j ON j.id = e.job_id
UNION ALL
SELECT b.pos + i.key * (1 + b.starts) + step.n, i.value, coalesce(b.revs ->> i.key, b.rev) + step.n,
    iif(step.n, 'started', b.type), coalesce(b.times ->> i.key, b.received_at), NULL, b.actor,
    coalesce(b.attempts ->> i.key, b.attempt), iif(step.n, 'claimed', b.from_status), iif(step.n, 'running', b.to_status),
    iif(step.n, NULL, b.reason), b.request_id, b.cause, CASE b.type WHEN 'enqueued' THEN coalesce(j.first_payload, j.payload) WHEN 'succeeded' THEN j.result END,
    iif(step.n, NULL, coalesce(b.policy_ids ->> i.key, b.policy_id)), j.correlation_id, j.trace_id, NULL, NULL, NULL
FROM holdfast_event_batches b
CROSS JOIN json_each(b.jobs) i
CROSS JOIN holdfast_jobs j ON j.id = i.value
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1) step ON step.n <= b.starts;

-- Jobs that are held or stalled.
CREATE VIEW holdfast_active_jobs AS
SELECT j.* FROM holdfast_open_claims c
CROSS JOIN holdfast_event_batches b ON b.pos = c.pos
CROSS JOIN json_each(b.jobs) i
CROSS JOIN holdfast_jobs j ON j.id = i.value AND j.claim_pos = c.pos
WHERE j.status IN ('claimed', 'running', 'stalled');

-- Answers to calls with a request id, for when the same call comes again.
CREATE TABLE holdfast_requests (
    actor      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    verb       TEXT NOT NULL,
    body_hash  BLOB NOT NULL,
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (actor, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_requests_time ON holdfast_requests (created_at);

-- Queues that are or were paused, have settings, or have subqueues. `settings` is a JSON object. A claim of a queue with
-- `has_flow` looks at subqueues.
CREATE TABLE holdfast_queues (
    name         TEXT PRIMARY KEY,
    paused_at    INTEGER,
    paused_by    TEXT,
    pause_reason TEXT,
    settings     TEXT,
    has_flow     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Limits that jobs draw on. The body is a JSON object.
CREATE TABLE holdfast_limits (
    name       TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The keys of limits. `body` has the numbers of this key, if they differ from those of the limit. `used` is how many units are in
-- use at most: claims raise it, and it is counted anew when it reaches the limit. `tokens` is what was left of the rate
-- at `filled_at`.
CREATE TABLE holdfast_limit_keys (
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    key       TEXT NOT NULL,
    body      TEXT,
    used      INTEGER NOT NULL DEFAULT 0,
    tokens    REAL NOT NULL DEFAULT 1e300,
    filled_at INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, key)
) STRICT;

-- Which claims have drawn on a key: a JSON list of their jobs, each with its units. A job uses its units while it has this claim
-- and is held or stalled. So nothing has to be given back when a job ends in any way.
CREATE TABLE holdfast_slots (
    key_id    INTEGER NOT NULL,
    claim_pos INTEGER NOT NULL,
    jobs      TEXT NOT NULL,
    PRIMARY KEY (key_id, claim_pos)
) STRICT, WITHOUT ROWID;

-- Which workers may have a job: those that serve its kind and have the labels (a JSON list). Of a job for one worker, the first
-- label is that worker's own. `worker` is that label, '' without one: a claim looks up the routes of its worker, and not those of others.
CREATE TABLE holdfast_routes (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    requires   TEXT NOT NULL,
    worker     TEXT NOT NULL GENERATED ALWAYS AS (iif(substr(requires ->> 0, 1, 7) = 'worker:', requires ->> 0, '')) VIRTUAL,
    UNIQUE (queue, worker, kind, requires)
) STRICT;

-- Subqueues. Jobs of a queue that have the same priority, route, partition and draws compete in one. `rank` is minus the priority.
-- `draws` is a JSON list of keys and units.
--
--   is_open      claims look at it. It may have no job that may start: the claim that finds this closes it
--   shut_key     the key whose limit it waits for
--   shut_at      since when it has waited for a limit. It keeps this place in line until a job of it has started
--   until        when it is opened again, if nothing opens it before
--   seen_at      when a process has last asked for its number
CREATE TABLE holdfast_subqueues (
    id        INTEGER PRIMARY KEY,
    queue     TEXT NOT NULL,
    rank      INTEGER NOT NULL,
    route     INTEGER NOT NULL,
    partition TEXT NOT NULL,
    draws     TEXT NOT NULL,
    seen_at   INTEGER NOT NULL,
    is_open   INTEGER NOT NULL DEFAULT 0,
    shut_key  INTEGER,
    shut_at   INTEGER,
    until     INTEGER,
    UNIQUE (queue, rank, route, partition, draws)
) STRICT;

CREATE INDEX holdfast_subqueues_open ON holdfast_subqueues (queue, route, rank, partition, id) WHERE is_open;
CREATE INDEX holdfast_subqueues_shut ON holdfast_subqueues (shut_key, route, rank, shut_at, id) WHERE shut_key IS NOT NULL;
CREATE INDEX holdfast_subqueues_until ON holdfast_subqueues (until) WHERE until IS NOT NULL;
CREATE INDEX holdfast_subqueues_seen ON holdfast_subqueues (seen_at) WHERE NOT is_open;

-- Subqueues that have got a job, and those of which a job no longer uses its units, as JSON lists. A claim works through these
-- notes.
CREATE TABLE holdfast_subqueue_notes (
    id     INTEGER PRIMARY KEY,
    queued TEXT,
    freed  TEXT
) STRICT;

-- Named positions: of followers of the total order, and of walks through a table.
CREATE TABLE holdfast_cursors (
    name TEXT PRIMARY KEY,
    pos  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which of many processes performs a ticking service, and until when no other one does.
CREATE TABLE holdfast_duties (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Workers. The body is a JSON object that the worker wrote. There is no index on seen_at, so that its updates are HOT.
CREATE TABLE holdfast_workers (
    name        TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (name, incarnation)
) STRICT;

-- Supervised programs. The body is a JSON object. Rows are updated every few seconds; without another index that is HOT.
CREATE TABLE holdfast_runs (
    name       TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- Each session of an agent: the task it works on, the last one it had, and how far it has read.
CREATE TABLE holdfast_agents (
    name       TEXT NOT NULL,
    session    TEXT NOT NULL,
    focus      INTEGER,
    last       INTEGER,
    cursor     INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (name, session)
) STRICT, WITHOUT ROWID;

-- The sinks of the outbox: how far each has been told, and its failures. The outbox itself is the total order of events.
-- A sink of heads gets the heads of the sealed log instead; its `pos` is the size of the last one.
CREATE TABLE holdfast_sinks (
    name       TEXT PRIMARY KEY,
    of_heads   INTEGER NOT NULL,
    pos        INTEGER NOT NULL,
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   INTEGER,
    dead_at    INTEGER,
    last_error TEXT,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The keys that may sign events, from which position on, and until which. They are in the same total order as the events.
-- `signer` is the key that vouches for the change; the first key of a ledger vouches for itself.
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

-- The tree of the sealed log: hashes by the 256. Those of level 0 are of the leaves, those of each level above are the roots of
-- the full tiles below. `positions` are those of the leaves, eight bytes each.
CREATE TABLE holdfast_tiles (
    level     INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    hashes    BLOB NOT NULL,
    positions BLOB,
    last_pos  INTEGER,
    PRIMARY KEY (level, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_tiles_pos ON holdfast_tiles (last_pos) WHERE level = 0;

-- Signed tree heads.
CREATE TABLE holdfast_heads (
    size INTEGER PRIMARY KEY,
    pos  INTEGER NOT NULL,
    root BLOB NOT NULL,
    note TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- Tokens of the HTTP server. Only a hash of the secret is stored. `queues` and `act_as` are JSON lists of patterns.
CREATE TABLE holdfast_tokens (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('reader', 'client', 'worker', 'operator', 'admin')),
    name         TEXT NOT NULL,
    queues       TEXT NOT NULL,
    act_as       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER,
    revoked_by   TEXT
) STRICT, WITHOUT ROWID;

-- Browser sessions, by the hash of their secret. Those of a token have its role, name and patterns. Those without a token belong
-- to persons whom an identity provider has signed in. `expires_at` is moved by requests.
CREATE TABLE holdfast_sessions (
    hash       BLOB PRIMARY KEY,
    token_id   TEXT,
    role       TEXT NOT NULL CHECK (role IN ('reader', 'client', 'worker', 'operator', 'admin')),
    name       TEXT NOT NULL,
    queues     TEXT NOT NULL,
    act_as     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Codes that each begin one session of their token, by the hash of the code.
CREATE TABLE holdfast_login_codes (
    hash       BLOB PRIMARY KEY,
    token_id   TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- How many jobs of a kind a queue has in each status, as of a position: the `pos` of `history_progress`.
CREATE TABLE holdfast_totals (
    queue  TEXT NOT NULL,
    kind   TEXT NOT NULL,
    status TEXT NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, status)
) STRICT, WITHOUT ROWID;

-- What happened in each minute and each hour, to all jobs, to those of a queue and to those of a kind, and what ever happened to all
-- jobs and to those of a kind, at time 0. The body is a JSON object: counts of events, the change of the number of queued jobs, and
-- histograms of waits and runs. A histogram is its sum and the number of times of each bucket that has any, in microseconds.
CREATE TABLE holdfast_history (
    step  TEXT NOT NULL CHECK (step IN ('minute', 'hour', 'ever')),
    scope TEXT NOT NULL CHECK (scope IN ('all', 'queue', 'kind')),
    name  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (step, scope, name, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_history_time ON holdfast_history (step, at);

-- The queues and kinds that have a history of their own. All others share the one with an empty name.
CREATE TABLE holdfast_history_names (
    scope   TEXT NOT NULL,
    name    TEXT NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- How far totals and history have come: one row.
--
--   pos          all events up to this position are counted
--   at           the time of the last of them, or when there were no others
--   since_at     the history is complete from this time on
--   deletions    how often jobs were deleted that had events after `pos`. Those are not counted any more.
CREATE TABLE holdfast_history_progress (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    pos       INTEGER NOT NULL DEFAULT 0,
    at        INTEGER,
    since_at  INTEGER,
    deletions INTEGER NOT NULL DEFAULT 0
) STRICT;
