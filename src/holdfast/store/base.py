"""The contract of a store. The ledger uses these types and contains no SQL.

A `Session` is one open transaction. It has one protocol for each feature. Its hot verbs are the SQL form of `decide` for the
plain case. They return the applied change for each command, and None where a guard did not hold. The ledger then loads, decides
and saves that command in the usual way.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.dependencies import DependencyState
from holdfast.core.model import EventRecord, JobRecord, Micros, Policy, Status
from holdfast.core.policy import Settings
from holdfast.errors import Unavailable
from holdfast.proof.key_book import KeyChange
from holdfast.store.agents import AgentState, Candidate, CheckpointBeat, IdleCounts, RelatedTaskRow
from holdfast.store.diagnostics import EventTime, ReadyCount
from holdfast.store.events import EventFilter
from holdfast.store.fleet import Declaration, DutyHolder, DutyStatus, PauseRow, RunRow, WorkerRow
from holdfast.store.jobs import DeadLetterFilter, DueJobs, JobFilter, JobRows, UnfinishedJobs
from holdfast.store.outbox import EndedJob, JobOrigin, SinkPosition
from holdfast.store.policies import Layer, Scope
from holdfast.store.requests import StoredRequest
from holdfast.store.rows import ClaimedJobs, EventRow
from holdfast.store.sealing import HeadRow, StableRows, TileRow

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

Lane = Literal["claim", "work", "keyed"]
"""Groups in different lanes may run at the same time if the store can do that. An enqueue with a key may have to wait for another
transaction, so it has a lane of its own."""


END_TRANSACTION_ACTION = "End that transaction, or its session with pg_terminate_backend, then retry."


class Contention(Exception):
    """A conflict with another transaction (a deadlock, a race for the same key). Nothing was changed: run it again."""


def lock_refusal(error: Exception, holder: str | None, what: str = "") -> Unavailable:
    """Return the error for a call that a lock of another transaction blocked.

    `holder` describes that transaction, if it is known. `what` is put before the message.
    """
    reason = str(error).split("\n", 1)[0] + (f": {holder}" if holder else "")
    refused = Unavailable(f"{what}another transaction is in the way: {reason}", locked=True)
    if holder:
        refused.action = END_TRANSACTION_ACTION
    return refused


class StatementFailed(Exception):
    """The database rejected the values of one statement. Nothing was changed. Other calls in the same group are not the cause."""


class AppliedCommand(NamedTuple):
    """The change that one accepted hot command made."""

    job_id: int
    rev: int
    status: Status
    at: Micros
    lease_expires_at: Micros | None = None
    cancel_requested: bool = False


class EnqueuedRow(NamedTuple):
    """The job that an enqueue created, or the existing one with its key."""

    job_id: int
    at: Micros
    is_new: bool


class Schema(NamedTuple):
    """The schema version, and which migrations ran when the store was opened."""

    found: int
    """The version before; 0 if there were no tables."""
    version: int
    applied: tuple[str, ...]
    """The names of the migrations that ran."""


class Transaction(Protocol):
    """What every session has."""

    careful: bool
    """Do not wait for locks of other transactions."""

    def now(self) -> Micros: ...
    def wake(self, queues: Iterable[str]) -> None:
        """At the commit, wake processes that wait for work in these queues and processes that follow the events."""


class HotVerbs(Protocol):
    """The SQL form of `decide` for the plain case of the verbs that workers use most."""

    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]: ...
    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow: ...
    def claim(self, command: ClaimNext) -> ClaimedJobs: ...
    def start(self, commands: Sequence[Start]) -> list[AppliedCommand | None]: ...
    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]: ...
    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        """Apply signed heartbeats. The caller has checked that each signed statement matches its heartbeat."""

    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]: ...
    def settle(self, commands: Sequence[Settle]) -> Container[int]:
        """Complete many different jobs. Return the ids of those that were completed."""

    def settle_alike(
        self, ids: Sequence[int], token: str, attempt: int, payload: bytes, request_id: str | None
    ) -> Sequence[int] | None:
        """Complete jobs of one claim that have this attempt number, with one result. `ids` are sorted.

        Return None if all were completed, else the ids of those that were.
        """


class Jobs(Protocol):
    """Jobs: loading, locking and saving, lists, and what a sweep looks for."""

    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, JobRecord]: ...
    def lock(self, ids: Iterable[int]) -> None: ...
    def try_lock(self, ids: Iterable[int]) -> set[int]:
        """Lock these jobs without waiting. Return those that another transaction has locked."""

    def pin(self, ids: Iterable[int]) -> set[int]:
        """Prevent that these jobs are deleted and, if that needs no waiting, that they end before this transaction does.

        Return those that may still end.
        """

    def save(self, job: JobRecord, events: Sequence[EventRecord]) -> None: ...
    def key_holder(self, queue: str, key: str) -> int | None:
        """Return the job that has this dedupe key in this queue."""

    def jobs(self, chosen: JobFilter) -> list[JobRecord]: ...
    def search(self, chosen: JobFilter) -> JobRows: ...
    def job_ids(self, after: int, limit: int) -> list[int]: ...
    def counts(self) -> list[tuple[str, str, int]]: ...
    def dead_letters(self, chosen: DeadLetterFilter) -> list[int]: ...
    def live_replay(self, job_id: int) -> int | None: ...
    def undo_steps(self, job_id: int) -> list[payloads.UndoStep]: ...
    def undo_job(self, job: JobRecord) -> JobRecord | None: ...
    def unfinished_jobs(self, limit: int, linked: int) -> UnfinishedJobs: ...
    def due(self, after: int, limit: int) -> DueJobs: ...
    def tidy_claims(self, limit: int) -> None: ...


class Dependencies(Protocol):
    """Dependencies between jobs. The caller must hold the locks that each method needs."""

    def draw_ids(self, count: int) -> list[int]: ...
    def dependency_states(self, ids: Iterable[int]) -> dict[int, DependencyState]: ...
    def link(self, edges: Mapping[int, Sequence[int]], unmet: Mapping[int, Sequence[int]], open_ids: Collection[int]) -> None: ...
    def depends_on(self, job_ids: Sequence[int]) -> dict[int, list[int]]: ...
    def set_waits(self, unmet: Mapping[int, Sequence[int]], open_ids: Collection[int] = (), *, limited: bool = True) -> None: ...
    def clear_links(self, job_ids: Iterable[int]) -> None: ...
    def lock_waiting(self, on_ids: Sequence[int]) -> dict[int, int]: ...
    def decrement_waits(self, ids: Sequence[int]) -> None: ...
    def save_dependents(self, jobs: Sequence[JobRecord], events: Sequence[EventRecord]) -> None: ...
    def failing_dependents(self, ids: Iterable[int], limit: int) -> list[int]: ...
    def note_open_cascades(self, ids: Iterable[int]) -> None: ...
    def clear_open_cascades(self, ids: Iterable[int]) -> None: ...
    def downstream(self, ids: Iterable[int]) -> list[int]: ...
    def move_dependents(self, from_id: int, to_id: int) -> None: ...
    def dependents(self, job_id: int, after: int, limit: int) -> list[int]: ...


class Events(Protocol):
    """The events of jobs, in the total order or by job."""

    def events(self, chosen: EventFilter) -> list[EventRecord]: ...
    def find_event(self, job_id: int, request_id: str) -> EventRecord | None: ...
    def has_event(self, job_id: int, cursor: int) -> bool: ...
    def newest_events(self, job_id: int, after: int, limit: int) -> list[EventRecord]: ...
    def count_events(self, job_id: int, after: int, rev_below: int, limit: int) -> int: ...


class Policies(Protocol):
    """Settings of kinds and tiers, declarations of handlers, and the policies that follow from them."""

    def policy_of(self, job: JobRecord) -> Policy: ...
    def settings_of(self, scope: Layer, name: str) -> Settings: ...
    def set_settings(self, scope: Scope, name: str, settings: Settings | None) -> None: ...
    def all_settings(self) -> list[tuple[str, str, Settings]]: ...
    def declare(self, declaration: Declaration) -> None: ...
    def drop_declaration(self, kind: str) -> None: ...
    def declarations(self) -> list[Declaration]: ...


class Requests(Protocol):
    """Answers to requests, kept for the case that a request is repeated."""

    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Lock these request ids until the transaction ends, without waiting. Return those that another transaction has."""

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]: ...
    def keep_requests(self, rows: Sequence[StoredRequest]) -> None: ...


class Fleet(Protocol):
    """Workers, duties, paused queues and supervised runs."""

    def take_duty(self, name: str, holder: str, ttl_us: int) -> bool: ...
    def drop_duty(self, name: str, holder: str) -> None: ...
    def watch(self, name: str, holder: str) -> DutyStatus: ...
    def duty(self, name: str) -> DutyHolder | None: ...
    def fresh_since(self) -> Micros: ...
    def note_fresh(self, at: Micros) -> None: ...
    def note_sweeping(self, since: Micros) -> None: ...
    def sign_in(self, name: str, incarnation: str, body: str | None) -> None: ...
    def sign_out(self, name: str, incarnation: str) -> None: ...
    def workers(self, within_us: int | None, limit: int) -> list[WorkerRow]: ...
    def next_ready(self, queues: Sequence[str], kinds: Sequence[str] | None) -> tuple[Micros, Micros | None]: ...
    def paused(self, queue: str) -> bool: ...
    def pause(self, queue: str, by: str, reason: str | None) -> None: ...
    def unpause(self, queue: str) -> None: ...
    def pauses(self) -> list[PauseRow]: ...
    def find_run(self, name: str) -> RunRow | None: ...
    def runs(self, after: str, limit: int) -> list[RunRow]: ...
    def save_run(self, name: str, body: str) -> None: ...


class Agents(Protocol):
    """Sessions of agents, and the tasks that they may claim."""

    def find_agent(self, name: str, session: str) -> AgentState: ...
    def save_agent(self, name: str, session: str, state: AgentState) -> None: ...
    def last_agent(self) -> Micros | None: ...
    def own_tasks(self, name: str, session: str, limit: int) -> list[int]: ...
    def first_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Candidate]: ...
    def take_task(self, queue: str, priority: int, kinds: Sequence[str] | None, passed: Sequence[int] = ()) -> int | None: ...
    def expired_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> list[int]: ...
    def lock_task(self, id_: int) -> bool: ...
    def idle(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> IdleCounts: ...
    def blockers(self, job_id: int, limit: int) -> list[RelatedTaskRow]: ...
    def unlocks(self, job_id: int, limit: int) -> list[RelatedTaskRow]: ...
    def checkpoint_beats(self, job_id: int, attempt: int, rev_above: int, attempts: int, beats: int) -> list[CheckpointBeat]: ...


class Keys(Protocol):
    """The log of key changes."""

    def lock_keys(self) -> None: ...
    def key_log(self) -> list[KeyChange]: ...
    def last_key_change(self) -> int: ...
    def add_key_change(self, change: KeyChange) -> int: ...


class Seals(Protocol):
    """The sealed log: leaves, tiles and heads."""

    def last_head(self) -> HeadRow | None: ...
    def heads(self, after: int, limit: int) -> list[HeadRow]: ...
    def sealed_pos(self) -> int | None: ...
    def leaves_between(self, after: int, until: int, limit: int) -> StableRows: ...
    def leaf_rows(self, job_id: int) -> list[EventRow]: ...
    def policy_texts(self) -> dict[int, str]: ...
    def without_first_event(self, ids: Sequence[int]) -> set[int]: ...
    def tile(self, level: int, number: int) -> TileRow | None: ...
    def leaf_index(self, pos: int) -> int | None: ...
    def seal(self, tiles: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool: ...


class Sinks(Protocol):
    """The positions of sinks, and the events and jobs that sinks and metrics read."""

    def sinks(self) -> list[SinkPosition]: ...
    def find_sink(self, name: str) -> SinkPosition | None: ...
    def add_sink(self, name: str, pos: int) -> None: ...
    def save_sink(self, sink: SinkPosition, from_pos: int) -> bool: ...
    def drop_sink(self, name: str) -> bool: ...
    def last_pos(self) -> int: ...
    def events_after(self, pos: int) -> int: ...
    def event_types(self, after: int, until: int) -> dict[str, int]: ...
    def ended_jobs(self, after: int, until: int, limit: int) -> list[EndedJob]: ...
    def origins(self, ids: Iterable[int]) -> dict[int, JobOrigin]: ...


class Diagnostics(Protocol):
    """Queries for `explain`, `doctor` and lists of dead letters."""

    def status_since(self, job: JobRecord) -> Micros: ...
    def ahead(self, job: JobRecord, limit: int) -> int: ...
    def ready(self, limit: int) -> list[ReadyCount]: ...
    def newest_replays(self, ids: Iterable[int]) -> dict[int, int]: ...
    def replayed(self, ids: Iterable[int]) -> set[int]: ...
    def failed_left(self, limit: int) -> int: ...
    def count_waiting_for_failed(self, limit: int) -> int: ...
    def event_from(self, pos: int) -> EventTime | None: ...
    def size(self) -> tuple[int | None, int]: ...


class Retention(Protocol):
    """Deletion of old data, a limited number of rows at a time."""

    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]: ...
    def prune_beats(self, before: Micros, limit: int) -> int: ...
    def prune_requests(self, before: Micros, limit: int) -> int: ...
    def prune_workers(self, before: Micros, limit: int) -> int: ...
    def prune_agents(self, before: Micros, limit: int) -> int: ...


class Session(
    Transaction,
    HotVerbs,
    Jobs,
    Dependencies,
    Events,
    Policies,
    Requests,
    Fleet,
    Agents,
    Keys,
    Seals,
    Sinks,
    Diagnostics,
    Retention,
    Protocol,
):
    """One transaction, with every feature. A function that needs one feature takes that feature's protocol."""


class Store(Protocol):
    """The storage of a ledger. Safe to use from many threads."""

    ledger_id: str
    schema: Schema
    patience: float
    """How many seconds a writing call waits for each response of the store."""

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction and commit when it returns. Raise Unavailable with the outcome on failure."""

    def transact_enqueue(self, work: Callable[[Session], T]) -> T:
        """Run `work`, whose one statement that writes is an enqueue, in one transaction. This may take fewer messages."""

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        """Run `work` in the caller's open transaction, on the caller's connection, inside a savepoint.

        If the store can, it wakes waiters of `queues` when the caller commits.
        """

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot. It must not write."""

    def read_long(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which may take long, on one snapshot. It must not write. If the store can, it reads a copy."""

    def read_statement(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which is ONE statement that does not write. No transaction is begun or ended around it."""

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run `work`, which is ONE statement that may write, as a transaction of its own. A server gets nothing else.

        It may run twice if the connection breaks, so it must be idempotent. With `again=False` it runs once, and a broken
        connection raises Unavailable with an unknown outcome.
        """

    def stable_pos(self) -> int:
        """Return the stable position: no event at or below it can still be committed."""

    def stable_events(self, after: int, limit: int) -> list[EventRecord]:
        """Return the next events in the total order, up to the stable position: no later commit can insert one between them."""

    def stable_rows(self, after: int, limit: int) -> StableRows:
        """Return the next events and key changes in the total order, up to the stable position, as plain rows.

        At most `limit` events. `event_hashes` takes rows of this form.
        """

    def wake(self, queues: Sequence[str]) -> None:
        """Wake waiters after a commit. Without queues, event followers may be woken some milliseconds later."""

    def waiter(self, *, events: bool) -> "Waiter":
        """Return a waiter for new work or, with `events`, for any event."""

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        """Describe the other transaction that has locked a job and is at least `seconds` old. Return None if it is unknown.

        Without a job, describe the transactions that have locked anything of this ledger for a second or longer.
        """

    def vitals(self) -> "StoreHealth":
        """Return the health of the store itself, apart from the jobs in it."""

    def lanes(self) -> Sequence[Lane]: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Waits for the ledger to change."""

    def wait(self, timeout: float) -> bool:
        """Return True as soon as there may be a change, and False after `timeout` seconds without one."""

    def close(self) -> None: ...
