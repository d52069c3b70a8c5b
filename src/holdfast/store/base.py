"""The contract a store keeps. The ledger knows these shapes and nothing of SQL.

A `Session` is one open transaction. Its hot verbs are the compiled form of `decide` for the plain case: each answers what
it did, and None for a command whose guard did not hold; that one is then loaded, decided and saved like any other.
"""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.model import Event, EventType, Job, Micros, Phase, Policy, Status
from holdfast.core.policy import Settings
from holdfast.core.proof.book import KeyChange
from holdfast.core.waiting import Standing
from holdfast.errors import Unavailable
from holdfast.store.agents import AgentPlace, Candidate, Idle, LeftBehind, Neighbour
from holdfast.store.places import EndedJob, Origin, Place
from holdfast.store.runs import RunRow
from holdfast.store.seals import SettledRows, SignedHead, TileRow
from holdfast.store.standing import Duty, EventTime, Ready

if TYPE_CHECKING:
    from holdfast.core.doctor.shapes import Vitals

T = TypeVar("T")

Lane = Literal["claim", "work", "keyed"]
Scope = Literal["kind", "tier"]
"""What operators set policies for."""
Layer = Literal["kind", "tier", "handler"]
"""Where settings are kept: what operators set for a kind or a tier, and what the handler of a kind declares."""
"""Groups in different lanes may be carried at the same time where the store can. Enqueues with a key may have to wait for
somebody else's transaction, so they wait alone."""


END_IT = "End that transaction, or its session with pg_terminate_backend, then ask again."


class Contention(Exception):
    """Another transaction got in the way (a deadlock, a race for the same key) and nothing was changed: run it again."""


def locked_out(error: Exception, holder: str | None, what: str = "") -> Unavailable:
    """The refusal of a call that another transaction was in the way of. `holder` is who that may be, `what` goes before."""
    reason = str(error).split("\n", 1)[0] + (f": {holder}" if holder else "")
    refused = Unavailable(f"{what}another transaction is in the way: {reason}", locked=True)
    if holder:
        refused.action = END_IT
    return refused


class StatementFailed(Exception):
    """The database refused a statement for what it said, and nothing was changed: whoever shares its transaction is innocent."""


class Change(NamedTuple):
    """What one accepted hot command did."""

    job_id: int
    rev: int
    status: Status
    at: Micros
    lease_expires_at: Micros | None = None
    cancel_requested: bool = False


class Made(NamedTuple):
    """A job that an enqueue made or, by its key, found."""

    job_id: int
    at: Micros
    is_new: bool


class Kept(NamedTuple):
    """A request that was answered before."""

    actor: str
    request_id: str
    verb: str
    body_hash: bytes
    answer: bytes


class Declaration(NamedTuple):
    """What the handler of a kind declares."""

    kind: str
    queue: str
    settings: Settings
    at: Micros
    by: str


class SignedIn(NamedTuple):
    """A worker that has said it is there."""

    name: str
    incarnation: str
    started_at: Micros
    seen_at: Micros
    body: str
    holding: int
    """Jobs that are leased to it."""


class Pause(NamedTuple):
    """A paused queue. Who paused it is not known of pauses that an older Holdfast has made."""

    queue: str
    at: Micros
    by: str | None
    reason: str | None


class Watched(NamedTuple):
    """What everybody may ask all the time about a duty."""

    now: Micros
    is_free: bool
    """Whether the one who asks might take the duty."""
    is_wanted: bool
    """Whether there is any job for a sweep to look at."""
    expires_at: Micros | None
    """Until when the duty is, or was last, held."""
    sweeping_since: Micros | None
    """Since when there have been sweeps without a gap."""


class LeftOver(NamedTuple):
    """Jobs for which a sweep has something to finish, by id."""

    owing: list[int]
    """Finished, with undo steps whose undo job is not there or over."""
    untold: list[int]
    """Finished, with dependents that have still to be told."""
    unlinked: list[int]
    """Waiting, and not yet counted as dependents of the jobs they wait for."""


class Schema(NamedTuple):
    """The version of the tables, and what opening them has found and done."""

    found: int
    """0 where there was none."""
    version: int
    applied: tuple[str, ...]
    """The names of the migrations that were run now."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Events by job, by type and time, by correlation; in the total order, after a position."""

    job_id: int | None = None
    types: tuple[str, ...] | None = None
    since: Micros | None = None
    until: Micros | None = None
    correlation_id: str | None = None
    after: int = 0
    rev_max: int | None = None
    limit: int = 1_000


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    statuses: tuple[str, ...] | None = None
    running_phases: tuple[str, ...] | None = None
    """Of running jobs only those in these phases; other statuses are not narrowed down."""
    phases: tuple[str, ...] | None = None
    """Only jobs in these phases. Running and stalled jobs have one."""
    queue: str | None = None
    kind: str | None = None
    correlation_id: str | None = None
    replay_of: int | None = None
    owner: str | None = None
    """Only what this worker holds; of all its incarnations, unless one is named."""
    incarnation: str | None = None
    waiting: bool = False
    """Only those that wait for others."""
    since: Micros | None = None
    until: Micros | None = None
    """When they were enqueued."""
    text: str | None = None
    newest: bool = False
    """By descending id."""
    after: int = 0
    """The last id of the page before; 0 for the first page."""
    limit: int = 100


class JobRows(NamedTuple):
    """A page of jobs. `next_after` is where the next page begins; None where there is none."""

    jobs: list[Job]
    next_after: int | None


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters by where, what, why and when; by ascending id, after one. `since` and `until` are about when they ended."""

    queue: str | None = None
    kind: str | None = None
    reason_code: str | None = None
    failure_stage: str | None = None
    since: Micros | None = None
    until: Micros | None = None
    discarded: bool = False
    """Those too of which somebody noted that nobody needs to look at them."""
    after: int = 0
    limit: int = 100


class Session(Protocol):
    """One transaction."""

    careful: bool
    """Do not wait for what another transaction has locked."""

    def now(self) -> Micros: ...
    def wake(self, queues: Iterable[str]) -> None:
        """With its commit, tell waiting processes that these queues have work, and followers that there is something to read."""

    def enqueue(self, items: Sequence[Enqueue]) -> list[Made]: ...
    def enqueue_keyed(self, item: Enqueue) -> Made: ...
    def claim(self, command: ClaimNext) -> list[Job]: ...
    def start(self, commands: Sequence[Start]) -> list[Change | None]: ...
    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[Change | None]: ...
    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[Change | None]:
        """Beats that carry what their holders signed; that each statement is about its beat has been checked."""

    def complete(self, commands: Sequence[Complete]) -> list[Change | None]: ...
    def settle(self, commands: Sequence[Settle]) -> Container[int]:
        """Complete many jobs, none of them twice in a call; answers which are done."""

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, Job]: ...
    def lock(self, ids: Iterable[int]) -> None: ...
    def try_lock(self, ids: Iterable[int]) -> set[int]:
        """Lock these jobs without waiting. Answers those that another transaction has locked."""

    def pin(self, ids: Iterable[int]) -> set[int]:
        """Keep these jobs from being deleted and, where that needs no waiting, from ending before this transaction does.

        Answers those that may end.
        """

    def key_holder(self, queue: str, key: str) -> int | None:
        """The job that has this dedupe key in this queue."""

    def save(self, job: Job, events: Sequence[Event]) -> None: ...
    def policy_of(self, job: Job) -> Policy: ...
    def paused(self, queue: str) -> bool: ...
    def pause(self, queue: str, by: str, reason: str | None) -> None: ...
    def unpause(self, queue: str) -> None: ...
    def settings_of(self, scope: Layer, name: str) -> Settings: ...
    def set_settings(self, scope: Scope, name: str, settings: Settings | None) -> None: ...
    def declare(self, found: Declaration) -> None: ...
    def drop_declaration(self, kind: str) -> None: ...
    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Take these request ids until the transaction ends, without waiting. Answers those that another transaction has."""

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Kept]: ...
    def keep_requests(self, rows: Sequence[Kept]) -> None: ...
    def find_event(self, job_id: int, request_id: str) -> Event | None: ...
    def events(self, chosen: EventFilter) -> list[Event]: ...
    def jobs(self, chosen: JobFilter) -> list[Job]: ...
    def search(self, chosen: JobFilter) -> JobRows: ...
    def job_ids(self, after: int, limit: int) -> list[int]: ...
    def draw_ids(self, count: int) -> list[int]: ...
    def standings(self, ids: Iterable[int]) -> dict[int, Standing]: ...
    def link(self, edges: Mapping[int, Sequence[int]], unmet: Mapping[int, Sequence[int]], open_ids: Collection[int]) -> None: ...
    def depends_on(self, job_ids: Sequence[int]) -> dict[int, list[int]]: ...
    def set_waits(self, unmet: Mapping[int, Sequence[int]], open_ids: Collection[int] = (), *, limited: bool = True) -> None: ...
    def forget_links(self, job_ids: Iterable[int]) -> None: ...
    def lock_waiting(self, on_ids: Sequence[int]) -> dict[int, int]: ...
    def meet(self, ids: Sequence[int]) -> None: ...
    def save_told(self, jobs: Sequence[Job], events: Sequence[Event]) -> None: ...
    def falling(self, ids: Iterable[int], limit: int) -> list[int]: ...
    def note_untold(self, ids: Iterable[int]) -> None: ...
    def forget_untold(self, ids: Iterable[int]) -> None: ...
    def downstream(self, ids: Iterable[int]) -> list[int]: ...
    def hand_on(self, from_id: int, to_id: int) -> None: ...
    def dependents(self, job_id: int, after: int, limit: int) -> list[int]: ...
    def live_replay(self, job_id: int) -> int | None: ...
    def dead_letters(self, chosen: LetterFilter) -> list[int]: ...
    def newest_replays(self, ids: Iterable[int]) -> dict[int, int]: ...

    def replayed(self, ids: Iterable[int]) -> set[int]: ...

    def failed_left(self, limit: int) -> int: ...

    def waiting_in_vain(self, limit: int) -> int: ...
    def left_over(self, limit: int, linked: int) -> LeftOver: ...
    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]: ...
    def undo_job(self, job: Job) -> Job | None: ...
    def counts(self) -> list[tuple[str, str, int]]: ...
    def pauses(self) -> list[Pause]: ...
    def due(self, after: int, limit: int) -> tuple[Micros, Micros, list[int]]: ...
    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]: ...
    def prune_beats(self, before: Micros, limit: int) -> int: ...
    def prune_requests(self, before: Micros, limit: int) -> int: ...
    def prune_workers(self, before: Micros, limit: int) -> int: ...
    def prune_agents(self, before: Micros, limit: int) -> int: ...
    def take_duty(self, name: str, holder: str, ttl_us: int) -> bool: ...
    def watch(self, name: str, holder: str) -> Watched: ...
    def fresh(self) -> Micros: ...
    def note_fresh(self, at: Micros) -> None: ...
    def note_sweeping(self, since: Micros) -> None: ...
    def drop_duty(self, name: str, holder: str) -> None: ...
    def sign_in(self, name: str, incarnation: str, body: str | None) -> None: ...
    def sign_out(self, name: str, incarnation: str) -> None: ...
    def workers(self, within_us: int | None, limit: int) -> list[SignedIn]: ...
    def next_ready(self, queues: Sequence[str], kinds: Sequence[str] | None) -> tuple[Micros, Micros | None]: ...
    def all_settings(self) -> list[tuple[str, str, Settings]]: ...
    def declarations(self) -> list[Declaration]: ...
    def sinks(self) -> list[Place]: ...
    def find_sink(self, name: str) -> Place | None: ...
    def add_sink(self, name: str, pos: int) -> None: ...
    def save_sink(self, place: Place, from_pos: int) -> bool: ...
    def drop_sink(self, name: str) -> bool: ...
    def last_pos(self) -> int: ...
    def event_from(self, pos: int) -> EventTime | None: ...
    def size(self) -> tuple[int | None, int]: ...
    def event_types(self, after: int, until: int) -> dict[str, int]: ...
    def ended_jobs(self, after: int, until: int, limit: int) -> list[EndedJob]: ...
    def origins(self, ids: Iterable[int]) -> dict[int, Origin]: ...
    def find_run(self, name: str) -> RunRow | None: ...
    def runs(self, after: str, limit: int) -> list[RunRow]: ...
    def save_run(self, name: str, body: str) -> None: ...
    def lock_keys(self) -> None: ...
    def key_log(self) -> list[KeyChange]: ...
    def keys_stand(self) -> int: ...
    def add_key_change(self, change: KeyChange) -> int: ...
    def find_agent(self, name: str, session: str) -> AgentPlace: ...
    def save_agent(self, name: str, session: str, place: AgentPlace) -> None: ...
    def own_tasks(self, name: str, session: str, limit: int) -> list[int]: ...
    def last_agent(self) -> Micros | None: ...
    def first_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Candidate]: ...
    def take_task(self, queue: str, priority: int, kinds: Sequence[str] | None, passed: Sequence[int] = ()) -> int | None: ...
    def expired_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> list[int]: ...
    def lock_task(self, id_: int) -> bool: ...
    def idle(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> Idle: ...
    def has_event(self, job_id: int, cursor: int) -> bool: ...
    def newest_events(self, job_id: int, after: int, limit: int) -> list[Event]: ...
    def count_events(self, job_id: int, after: int, rev_below: int, limit: int) -> int: ...
    def blockers(self, job_id: int, limit: int) -> list[Neighbour]: ...
    def unlocks(self, job_id: int, limit: int) -> list[Neighbour]: ...
    def checkpoint_beats(self, job_id: int, attempt: int, rev_above: int, attempts: int, beats: int) -> list[LeftBehind]: ...
    def last_head(self) -> SignedHead | None: ...
    def heads(self, after: int, limit: int) -> list[SignedHead]: ...
    def sealed_pos(self) -> int | None: ...
    def leaves_between(self, after: int, until: int, limit: int) -> SettledRows: ...
    def leaf_rows(self, job_id: int) -> list[tuple[Any, ...]]: ...
    def policy_texts(self) -> dict[int, str]: ...
    def tile(self, level: int, number: int) -> TileRow | None: ...
    def leaf_index(self, pos: int) -> int | None: ...
    def seal(self, tiles: Sequence[TileRow], head: SignedHead, base: SignedHead | None) -> bool: ...
    def standing_since(self, job: Job) -> Micros: ...
    def ahead(self, job: Job, limit: int) -> int: ...
    def duty(self, name: str) -> Duty | None: ...
    def ready(self, limit: int) -> list[Ready]: ...


class Store(Protocol):
    """A ledger's durable half. Safe to use from many threads."""

    ledger_id: str
    schema: Schema
    patience: float
    """How many seconds a call that writes waits for one answer of the store."""

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction, committed when it returns. Raises Unavailable with the outcome stated."""

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        """Run `work` in the caller's own transaction on the caller's own connection, behind a savepoint.

        Where the store can, `queues` are rung when the caller commits.
        """

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot; it must not write."""

    def peek(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which is ONE statement that does not write: nothing else is sent, no transaction is begun or ended."""

    def poke(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run `work`, which is ONE statement that may write, as a transaction of its own: on a server, nothing else is sent.

        It may be run twice, where a connection breaks: doing it again must do no harm. With `again=False` it is run once, and
        a broken connection is Unavailable with an unknown outcome.
        """

    def settled_pos(self) -> int:
        """No event at or below this position is still to be committed."""

    def settled_events(self, after: int, limit: int) -> list[Event]:
        """The next events in the total order, none of which can still be overtaken by a late commit."""

    def settled_rows(self, after: int, limit: int) -> SettledRows:
        """The next events and changes of keys in the total order as plain rows, none of which can still be overtaken.

        At most `limit` events. Rows of events are as `event_hashes` takes them.
        """

    def wake(self, queues: Sequence[str]) -> None:
        """The same for what has been committed already. Followers alone may hear of it some milliseconds later."""

    def waiter(self, *, events: bool) -> "Waiter":
        """Somebody to wait for new work, or for any event at all."""

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        """Which other transaction has locked a job and is at least so old, in words; None where that cannot be told.

        Without a job: which ones have locked anything of this ledger for a second or longer.
        """

    def vitals(self) -> "Vitals":
        """How the store itself is, apart from what is in it."""

    def lanes(self) -> Sequence[Lane]: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Somebody waiting for the ledger to change."""

    def wait(self, timeout: float) -> bool:
        """True when there may be something new, at most `timeout` seconds from now; False where only time has passed."""

    def close(self) -> None: ...


_JOB_ID = re.compile(r"[1-9][0-9]{0,17}")


def default_correlation(ledger_id: str, job_id: int) -> str:
    """The correlation id of a job that was given none: derived, so that it costs nothing to keep."""
    return f"{ledger_id}-{job_id}"


def job_of_correlation(ledger_id: str, correlation_id: str) -> int | None:
    """The job whose derived correlation id this is."""
    prefix, _, number = correlation_id.rpartition("-")
    return int(number) if prefix == ledger_id and _JOB_ID.fullmatch(number) else None


STATUSES: dict[str, Status] = {status.value: status for status in Status}
PHASES: dict[str | None, Phase | None] = {None: None} | {phase.value: phase for phase in Phase}
EVENT_TYPES: dict[str, EventType] = {kind.value: kind for kind in EventType}

JOB_COLUMNS = (
    "id", "queue", "kind", "status", "rev", "attempt", "priority", "available_at", "created_at", "updated_at", "phase",
    "releases", "owner", "incarnation", "claimed_at", "lease_expires_at", "last_beat_at", "started_at", "finished_at",
    "stage", "progress", "progressed_at", "assist_requested", "counter", "last_owner", "last_lease_expires_at", "last_error",
    "stall_reason", "stalled_at", "revived_at", "cancel_reason", "cancel_requested_at", "reason_code", "failure_stage",
    "undo_owed", "note", "dedupe_key", "dedupe_forever", "correlation_id", "trace_id", "token", "policy_id", "enqueued",
    "outcome", "checkpoint", "unmet",
)  # fmt: skip
"""What a store selects to build a Job: its row, then the payloads of its first event, of its `succeeded` one and of the last
beat with a checkpoint, and the ids of those it waits for, as one text."""


def build_job(row: Sequence[Any], policy: Callable[[int], Policy], ledger_id: str) -> Job:
    """A Job from a row in the order of JOB_COLUMNS."""
    (id_, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, phase, releases, owner,
     incarnation, claimed_at, lease_expires_at, last_beat_at, started_at, finished_at, stage, progress, progressed_at,
     assist_requested, counter, last_owner, last_lease_expires_at, last_error, stall_reason, stalled_at, revived_at,
     cancel_reason, cancel_requested_at, reason_code, failure_stage, undo_owed, note, dedupe_key, dedupe_forever,
     correlation_id, trace_id, token, policy_id, enqueued, outcome, checkpoint, unmet) = row  # fmt: skip
    body = payloads.decode(payloads.Enqueued, enqueued)
    return Job(
        id_, queue, kind, STATUSES[status], rev, attempt, priority, available_at, created_at, updated_at, bytes(body.args),
        correlation_id or default_correlation(ledger_id, id_), PHASES[phase], releases, owner, incarnation, claimed_at,
        lease_expires_at, last_beat_at, started_at, finished_at, stage, progress, progressed_at, bool(assist_requested),
        counter, last_owner, last_lease_expires_at, last_error, stall_reason, stalled_at, revived_at, cancel_reason,
        cancel_requested_at, reason_code, failure_stage,
        None if outcome is None else bytes(payloads.decode(payloads.Succeeded, outcome).result),
        payloads.checkpoint_of(checkpoint), undo_owed,
        note, dedupe_key, bool(dedupe_forever), body.tier, trace_id, body.replay_of,
        payloads.body_of(body.policy), None if policy_id is None else policy(policy_id), token, body.depends_on,
        body.on_dependency_failure, body.wanted_at(created_at),
        () if unmet is None else tuple(sorted(map(int, unmet.split(",")))),
    )  # fmt: skip


CLAIMED_COLUMNS = (
    "id", "queue", "kind", "rev", "attempt", "priority", "available_at", "created_at", "claimed_at", "lease_expires_at",
    "releases", "last_owner", "last_lease_expires_at", "last_error", "cancel_reason", "dedupe_key", "dedupe_forever",
    "correlation_id", "trace_id", "policy_id", "checkpoint_rev", "undo_owed", "enqueued",
)  # fmt: skip
"""What a claim returns of each job."""


def claimed_jobs(
    rows: Iterable[Sequence[Any]],
    command: ClaimNext,
    policy: Callable[[int], Policy],
    ledger_id: str,
    checkpoints: Mapping[int, bytes | None],
    epoch_us: Micros,
) -> list[Job]:
    """Jobs from rows that start with CLAIMED_COLUMNS, times since `epoch_us`, and the checkpoints of those that have one.

    Positional: with names it takes ten times as long.
    """
    start, owner, incarnation = command.start, command.actor.name, command.actor.incarnation
    status, phase = (Status.RUNNING, Phase.EXECUTING) if start else (Status.CLAIMED, None)
    found = []
    for row in rows:
        (id_, queue, kind, rev, attempt, priority, available_at, created_at, at, lease_expires_at, releases, last_owner,
         last_lease, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
         checkpoint_rev, undo_owed, enqueued) = row[:23]  # fmt: skip
        body = payloads.decode(payloads.Enqueued, enqueued)
        at += epoch_us
        found.append(Job(
            id_, queue, kind, status, rev, attempt, priority, available_at + epoch_us, created_at + epoch_us, at,
            bytes(body.args), correlation_id or default_correlation(ledger_id, id_), phase, releases, owner, incarnation, at,
            lease_expires_at + epoch_us, at, at if start else None, None, None, None, at, False, None, last_owner,
            None if last_lease is None else last_lease + epoch_us, last_error, None, None, None,
            cancel_reason, None, None, None, None, None if checkpoint_rev is None else checkpoints[id_], undo_owed, None,
            dedupe_key, bool(dedupe_forever), body.tier, trace_id, body.replay_of, payloads.body_of(body.policy),
            policy(policy_id), None, body.depends_on, body.on_dependency_failure,
            body.wanted_at(created_at + epoch_us),
        ))  # fmt: skip
    return found


SAVED_COLUMNS = (
    "queue", "priority", "status", "rev", "attempt", "available_at", "updated_at", "phase", "releases", "owner", "incarnation",
    "claimed_at",
    "lease_expires_at", "last_beat_at", "started_at", "finished_at", "stage", "progress", "progressed_at",
    "assist_requested", "counter", "last_owner", "last_lease_expires_at", "last_error", "stall_reason", "stalled_at",
    "revived_at", "cancel_reason", "cancel_requested_at", "reason_code", "failure_stage", "undo_owed", "note",
    "token",
)  # fmt: skip
"""What a save may change; `policy_id`, `result_rev` and `checkpoint_rev` are the store's to derive."""


def saved_values(job: Job) -> dict[str, Any]:
    """The row's new values by column, as plain texts and numbers."""
    values = {name: getattr(job, name) for name in SAVED_COLUMNS}
    values["status"] = job.status.value
    values["phase"] = None if job.phase is None else job.phase.value
    return values


def result_rev(events: Sequence[Event]) -> int | None:
    """Where a succeeded job's result is: its `succeeded` event among `events`."""
    return next((event.rev for event in events if event.type is EventType.SUCCEEDED), None)


def checkpoint_rev(events: Sequence[Event]) -> int | None:
    """Where the newest checkpoint among `events` is."""
    beats = [event for event in events if event.type is EventType.HEARTBEAT]
    return max((event.rev for event in beats if payloads.checkpoint_of(event.payload) is not None), default=None)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
