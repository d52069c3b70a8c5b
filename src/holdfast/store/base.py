"""The contract a store keeps. The ledger knows these shapes and nothing of SQL.

A `Session` is one open transaction. Its hot verbs are the compiled form of `decide` for the plain case: each answers what
it did, and None for a command whose guard did not hold; that one is then loaded, decided and saved like any other.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, CompleteInBatch, Enqueue, Heartbeat, Start
from holdfast.core.dependencies import DependencyState
from holdfast.core.model import EventRecord, JobRecord, Micros, Policy, Status
from holdfast.core.policy import Settings
from holdfast.errors import Unavailable
from holdfast.proof.key_book import KeyChange
from holdfast.store.agents import AgentState, Candidate, CheckpointBeat, IdleCounts, RelatedTaskRow
from holdfast.store.diagnostics import DutyHolder, EventTime, ReadyCount
from holdfast.store.fleet import Declaration, DutyStatus, RunRow, WorkerRow
from holdfast.store.outbox import EndedJob, JobOrigin, SinkPosition
from holdfast.store.sealing import HeadRow, StableRows, TileRow

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

Lane = Literal["claim", "work", "keyed"]
Scope = Literal["kind", "tier"]
"""What operators set policies for."""
Layer = Literal["kind", "tier", "handler"]
"""Where settings are kept: what operators set for a kind or a tier, and what the handler of a kind declares."""
"""Groups in different lanes may be carried at the same time where the store can. Enqueues with a key may have to wait for
somebody else's transaction, so they wait alone."""


END_TRANSACTION_ACTION = "End that transaction, or its session with pg_terminate_backend, then ask again."


class Contention(Exception):
    """Another transaction got in the way (a deadlock, a race for the same key) and nothing was changed: run it again."""


def lock_refusal(error: Exception, holder: str | None, what: str = "") -> Unavailable:
    """The refusal of a call that another transaction was in the way of. `holder` is who that may be, `what` goes before."""
    reason = str(error).split("\n", 1)[0] + (f": {holder}" if holder else "")
    refused = Unavailable(f"{what}another transaction is in the way: {reason}", locked=True)
    if holder:
        refused.action = END_TRANSACTION_ACTION
    return refused


class StatementFailed(Exception):
    """The database refused a statement for what it said, and nothing was changed: whoever shares its transaction is innocent."""


class AppliedCommand(NamedTuple):
    """What one accepted hot command did."""

    job_id: int
    rev: int
    status: Status
    at: Micros
    lease_expires_at: Micros | None = None
    cancel_requested: bool = False


class EnqueuedRow(NamedTuple):
    """A job that an enqueue made or, by its key, found."""

    job_id: int
    at: Micros
    is_new: bool


class StoredRequest(NamedTuple):
    """A request that was answered before."""

    actor: str
    request_id: str
    verb: str
    body_hash: bytes
    answer: bytes


class PauseRow(NamedTuple):
    """A paused queue. Who paused it is not known of pauses that an older Holdfast has made."""

    queue: str
    at: Micros
    by: str | None
    reason: str | None


class UnfinishedJobs(NamedTuple):
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

    jobs: list[JobRecord]
    next_after: int | None


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
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

    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]: ...
    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow: ...
    def claim(self, command: ClaimNext) -> list[JobRecord]: ...
    def start(self, commands: Sequence[Start]) -> list[AppliedCommand | None]: ...
    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]: ...
    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        """Beats that carry what their holders signed; that each statement is about its beat has been checked."""

    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]: ...
    def settle(self, commands: Sequence[CompleteInBatch]) -> Container[int]:
        """Complete many jobs, none of them twice in a call; answers which are done."""

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, JobRecord]: ...
    def lock(self, ids: Iterable[int]) -> None: ...
    def try_lock(self, ids: Iterable[int]) -> set[int]:
        """Lock these jobs without waiting. Answers those that another transaction has locked."""

    def pin(self, ids: Iterable[int]) -> set[int]:
        """Keep these jobs from being deleted and, where that needs no waiting, from ending before this transaction does.

        Answers those that may end.
        """

    def key_holder(self, queue: str, key: str) -> int | None:
        """The job that has this dedupe key in this queue."""

    def save(self, job: JobRecord, events: Sequence[EventRecord]) -> None: ...
    def policy_of(self, job: JobRecord) -> Policy: ...
    def paused(self, queue: str) -> bool: ...
    def pause(self, queue: str, by: str, reason: str | None) -> None: ...
    def unpause(self, queue: str) -> None: ...
    def settings_of(self, scope: Layer, name: str) -> Settings: ...
    def set_settings(self, scope: Scope, name: str, settings: Settings | None) -> None: ...
    def declare(self, found: Declaration) -> None: ...
    def drop_declaration(self, kind: str) -> None: ...
    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Take these request ids until the transaction ends, without waiting. Answers those that another transaction has."""

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]: ...
    def keep_requests(self, rows: Sequence[StoredRequest]) -> None: ...
    def find_event(self, job_id: int, request_id: str) -> EventRecord | None: ...
    def events(self, chosen: EventFilter) -> list[EventRecord]: ...
    def jobs(self, chosen: JobFilter) -> list[JobRecord]: ...
    def search(self, chosen: JobFilter) -> JobRows: ...
    def job_ids(self, after: int, limit: int) -> list[int]: ...
    def draw_ids(self, count: int) -> list[int]: ...
    def standings(self, ids: Iterable[int]) -> dict[int, DependencyState]: ...
    def link(self, edges: Mapping[int, Sequence[int]], unmet: Mapping[int, Sequence[int]], open_ids: Collection[int]) -> None: ...
    def depends_on(self, job_ids: Sequence[int]) -> dict[int, list[int]]: ...
    def set_waits(self, unmet: Mapping[int, Sequence[int]], open_ids: Collection[int] = (), *, limited: bool = True) -> None: ...
    def forget_links(self, job_ids: Iterable[int]) -> None: ...
    def lock_waiting(self, on_ids: Sequence[int]) -> dict[int, int]: ...
    def meet(self, ids: Sequence[int]) -> None: ...
    def save_told(self, jobs: Sequence[JobRecord], events: Sequence[EventRecord]) -> None: ...
    def falling(self, ids: Iterable[int], limit: int) -> list[int]: ...
    def note_untold(self, ids: Iterable[int]) -> None: ...
    def forget_untold(self, ids: Iterable[int]) -> None: ...
    def downstream(self, ids: Iterable[int]) -> list[int]: ...
    def hand_on(self, from_id: int, to_id: int) -> None: ...
    def dependents(self, job_id: int, after: int, limit: int) -> list[int]: ...
    def live_replay(self, job_id: int) -> int | None: ...
    def dead_letters(self, chosen: DeadLetterFilter) -> list[int]: ...
    def newest_replays(self, ids: Iterable[int]) -> dict[int, int]: ...

    def replayed(self, ids: Iterable[int]) -> set[int]: ...

    def failed_left(self, limit: int) -> int: ...

    def waiting_in_vain(self, limit: int) -> int: ...
    def unfinished_jobs(self, limit: int, linked: int) -> UnfinishedJobs: ...
    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]: ...
    def undo_job(self, job: JobRecord) -> JobRecord | None: ...
    def counts(self) -> list[tuple[str, str, int]]: ...
    def pauses(self) -> list[PauseRow]: ...
    def due(self, after: int, limit: int) -> tuple[Micros, Micros, list[int]]: ...
    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]: ...
    def prune_beats(self, before: Micros, limit: int) -> int: ...
    def prune_requests(self, before: Micros, limit: int) -> int: ...
    def prune_workers(self, before: Micros, limit: int) -> int: ...
    def prune_agents(self, before: Micros, limit: int) -> int: ...
    def take_duty(self, name: str, holder: str, ttl_us: int) -> bool: ...
    def watch(self, name: str, holder: str) -> DutyStatus: ...
    def fresh(self) -> Micros: ...
    def note_fresh(self, at: Micros) -> None: ...
    def note_sweeping(self, since: Micros) -> None: ...
    def drop_duty(self, name: str, holder: str) -> None: ...
    def sign_in(self, name: str, incarnation: str, body: str | None) -> None: ...
    def sign_out(self, name: str, incarnation: str) -> None: ...
    def workers(self, within_us: int | None, limit: int) -> list[WorkerRow]: ...
    def next_ready(self, queues: Sequence[str], kinds: Sequence[str] | None) -> tuple[Micros, Micros | None]: ...
    def all_settings(self) -> list[tuple[str, str, Settings]]: ...
    def declarations(self) -> list[Declaration]: ...
    def sinks(self) -> list[SinkPosition]: ...
    def find_sink(self, name: str) -> SinkPosition | None: ...
    def add_sink(self, name: str, pos: int) -> None: ...
    def save_sink(self, place: SinkPosition, from_pos: int) -> bool: ...
    def drop_sink(self, name: str) -> bool: ...
    def last_pos(self) -> int: ...
    def event_from(self, pos: int) -> EventTime | None: ...
    def size(self) -> tuple[int | None, int]: ...
    def event_types(self, after: int, until: int) -> dict[str, int]: ...
    def ended_jobs(self, after: int, until: int, limit: int) -> list[EndedJob]: ...
    def origins(self, ids: Iterable[int]) -> dict[int, JobOrigin]: ...
    def find_run(self, name: str) -> RunRow | None: ...
    def runs(self, after: str, limit: int) -> list[RunRow]: ...
    def save_run(self, name: str, body: str) -> None: ...
    def lock_keys(self) -> None: ...
    def key_log(self) -> list[KeyChange]: ...
    def keys_stand(self) -> int: ...
    def add_key_change(self, change: KeyChange) -> int: ...
    def find_agent(self, name: str, session: str) -> AgentState: ...
    def save_agent(self, name: str, session: str, place: AgentState) -> None: ...
    def own_tasks(self, name: str, session: str, limit: int) -> list[int]: ...
    def last_agent(self) -> Micros | None: ...
    def first_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Candidate]: ...
    def take_task(self, queue: str, priority: int, kinds: Sequence[str] | None, passed: Sequence[int] = ()) -> int | None: ...
    def expired_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> list[int]: ...
    def lock_task(self, id_: int) -> bool: ...
    def idle(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> IdleCounts: ...
    def has_event(self, job_id: int, cursor: int) -> bool: ...
    def newest_events(self, job_id: int, after: int, limit: int) -> list[EventRecord]: ...
    def count_events(self, job_id: int, after: int, rev_below: int, limit: int) -> int: ...
    def blockers(self, job_id: int, limit: int) -> list[RelatedTaskRow]: ...
    def unlocks(self, job_id: int, limit: int) -> list[RelatedTaskRow]: ...
    def checkpoint_beats(self, job_id: int, attempt: int, rev_above: int, attempts: int, beats: int) -> list[CheckpointBeat]: ...
    def last_head(self) -> HeadRow | None: ...
    def heads(self, after: int, limit: int) -> list[HeadRow]: ...
    def sealed_pos(self) -> int | None: ...
    def leaves_between(self, after: int, until: int, limit: int) -> StableRows: ...
    def leaf_rows(self, job_id: int) -> list[tuple[Any, ...]]: ...
    def policy_texts(self) -> dict[int, str]: ...
    def tile(self, level: int, number: int) -> TileRow | None: ...
    def leaf_index(self, pos: int) -> int | None: ...
    def seal(self, tiles: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool: ...
    def standing_since(self, job: JobRecord) -> Micros: ...
    def ahead(self, job: JobRecord, limit: int) -> int: ...
    def duty(self, name: str) -> DutyHolder | None: ...
    def ready(self, limit: int) -> list[ReadyCount]: ...


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

    def read_statement(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which is ONE statement that does not write: nothing else is sent, no transaction is begun or ended."""

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run `work`, which is ONE statement that may write, as a transaction of its own: on a server, nothing else is sent.

        It may be run twice, where a connection breaks: doing it again must do no harm. With `again=False` it is run once, and
        a broken connection is Unavailable with an unknown outcome.
        """

    def stable_pos(self) -> int:
        """No event at or below this position is still to be committed."""

    def stable_events(self, after: int, limit: int) -> list[EventRecord]:
        """The next events in the total order, none of which can still be overtaken by a late commit."""

    def stable_rows(self, after: int, limit: int) -> StableRows:
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

    def vitals(self) -> "StoreHealth":
        """How the store itself is, apart from what is in it."""

    def lanes(self) -> Sequence[Lane]: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Somebody waiting for the ledger to change."""

    def wait(self, timeout: float) -> bool:
        """True when there may be something new, at most `timeout` seconds from now; False where only time has passed."""

    def close(self) -> None: ...
