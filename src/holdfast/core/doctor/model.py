"""The facts that `doctor` checks, and its report."""

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.explain.model import QueuePause, SeenWorker
from holdfast.core.model import Micros


class Severity(StrEnum):
    WELL = "well"
    NOTE = "note"
    """Worth knowing. No action is needed."""
    WARNING = "warning"
    """The operator has to act."""


class HealthFinding(msgspec.Struct, frozen=True):
    """The result of one check. `code` never changes once released."""

    code: str
    severity: Severity
    words: str
    action: str = ""


def well(code: str, words: str) -> HealthFinding:
    return HealthFinding(code, Severity.WELL, words)


def note(code: str, words: str, action: str = "") -> HealthFinding:
    return HealthFinding(code, Severity.NOTE, words, action)


def warning(code: str, words: str, action: str) -> HealthFinding:
    return HealthFinding(code, Severity.WARNING, words, action)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a ledger at `now`."""

    ledger_id: str
    store: str
    store_version: str
    schema_version: int
    now: datetime
    well: bool
    """Whether no action is needed."""
    findings: list[HealthFinding]


# The store itself


class StoredFile(msgspec.Struct, frozen=True):
    path: str
    mode: int


class OpenTransaction(msgspec.Struct, frozen=True):
    """The oldest open transaction of a kind. Names are empty if this account may not see them."""

    who: str
    age_us: int


class LockedJob(msgspec.Struct, frozen=True):
    """A held or stalled job that another transaction has locked, and the age of that transaction."""

    job_id: int
    who: str
    age_us: int


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the store itself. A field is None or empty if the store does not have it or cannot read it."""

    store: str
    version: str
    schema_version: int
    schema_known: int
    settings: dict[str, str] = {}
    """The settings that decide whether acknowledged writes survive a crash."""
    files: tuple[StoredFile, ...] = ()
    disk_free_bytes: int | None = None
    oldest: OpenTransaction | None = None
    """The oldest transaction. It holds back vacuum."""
    writer: OpenTransaction | None = None
    """The oldest writing transaction. It holds back the readers of the total order: its transaction id is the horizon."""
    horizon_xids: int | None = None
    """Transaction ids that were assigned since the oldest running one."""
    locked: tuple[LockedJob, ...] = ()
    """The jobs that the oldest transactions have locked, oldest first."""
    replica: bool = False
    """Whether the server is read-only."""
    connections: int = 0
    """The server's connections in use, to all its databases."""
    connections_max: int | None = None
    """How many connections ordinary accounts may have together."""
    pooled: bool = False
    """Whether a connection pooler is between this process and the server."""
    poll_ms: int | None = None
    """How often workers poll for new work, if notifications cannot reach them."""
    log_bytes: int | None = None
    """The size of SQLite's write-ahead log."""
    log_readers: tuple[int, ...] = ()
    """The processes that have a read transaction open on a SQLite file now."""
    stopped_writer: int | None = None
    """The id of a process that has SQLite's write lock and was stopped by a signal."""


class Skew(msgspec.Struct, frozen=True):
    """How far the ledger's clock is ahead of this machine's. The error is at most half of a round trip."""

    ahead_us: int
    round_trip_us: int


# The contents of the ledger


class ReadyJobs(msgspec.Struct, frozen=True):
    queue: str
    kind: str
    jobs: int
    since: Micros


class RoutedJobs(msgspec.Struct, frozen=True):
    """Jobs that could be claimed by certain workers only."""

    queue: str
    kind: str
    requires: tuple[str, ...]
    """Labels that their worker must have, first the own label of their only worker, if they are for one."""
    jobs: int
    since: Micros
    route: int = 0
    """The number of this combination in the store."""


class LimitTrouble(msgspec.Struct, frozen=True):
    """Queued jobs that draw on a limit that was removed, or more units than it has."""

    limit: str
    """With its key, if one key has too few units."""
    jobs: int
    units: int = 0
    """What they draw of a limit that is too small. 0 if the limit was removed."""


class SinkHealth(msgspec.Struct, frozen=True):
    name: str
    failures: int
    dead: bool
    last_error: str | None
    relay: str | None = None
    """The process that delivers to it."""
    waiting: int = 0
    """Events after its position."""
    waiting_since: Micros = 0
    """When the first of them was recorded."""


class ScheduleHealth(msgspec.Struct, frozen=True):
    """A schedule that is late, or whose last firing was refused."""

    name: str
    fire_at: Micros | None
    last_error: str | None


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose follow-up job is not made: it was refused, some jobs did not succeed, or the group was never closed."""

    name: str
    jobs: int
    dead: int
    """Jobs that ended without success."""
    is_open: bool
    has_told: bool
    """Whether its other follow-up job, for the first job that did not succeed, was made."""
    last_error: str | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The number of events and how fast it grows. The numbers are estimates: no table is read completely."""

    events: int
    first_at: Micros
    """When the first event was recorded."""
    bytes: int
    """The size of the ledger on disk, with its jobs and indexes."""
    recent: int
    """Events of the last `recent_us`."""
    recent_us: int


class LedgerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the contents of the ledger that show whether something is stuck. Counts stop at COUNT_MAX."""

    now: Micros
    due: int = 0
    """Held and stalled jobs for which a sweep has something to do."""
    owing: int = 0
    """Finished jobs whose undo steps have to be started or noted, or whose cascade is not complete."""
    sweeper: str | None = None
    paused: dict[str, QueuePause] = {}
    ready: tuple[ReadyJobs, ...] = ()
    routable: tuple[ReadyJobs, ...] | None = None
    """The same without jobs that no running worker may have. None if there are no such jobs."""
    workers: tuple[SeenWorker, ...] = ()
    agent_at: Micros | None = None
    """When any agent was last active."""
    routed: tuple[RoutedJobs, ...] = ()
    limits: tuple[LimitTrouble, ...] = ()
    sinks: tuple[SinkHealth, ...] = ()
    schedules: tuple[ScheduleHealth, ...] = ()
    """Schedules that need attention."""
    groups: tuple[GroupHealth, ...] = ()
    """Groups that need attention."""
    failed: int = 0
    """Failed jobs that were neither discarded nor replayed. A replay that was cancelled does not count."""
    in_vain: int = 0
    """Jobs that wait for a job that failed, was cancelled or dead-lettered."""
    dead_letters: int = 0
    """The newest dead letters that were not discarded, GROUPED_LETTERS_MAX at most."""
    replayed: int = 0
    """Dead letters among them that were replayed. One whose newest replay failed or was cancelled does not count."""
    signed: tuple[str, ...] = ()
    """Kinds and tiers whose policy requires signed events."""
    server_key: bool = False
    sealed_pos: int | None = None
    """None if nothing was ever sealed."""
    unsealed: int = 0
    """Events that are not sealed yet."""
    history: History | None = None
    """None if there are no events yet."""
    sealed_at: Micros = 0
    sealer: str | None = None
    """The process that seals."""
    uncounted: int | None = None
    """Events that are not kept in totals and history yet. None if none was ever counted."""
    counter: str | None = None
    """The process that counts them."""


COUNT_MAX = 1_000
