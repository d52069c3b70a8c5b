"""The facts that `doctor` looks at, and its report."""

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.explain.model import QueuePause, SeenWorker
from holdfast.core.model import Micros


class Severity(StrEnum):
    WELL = "well"
    NOTE = "note"
    """Worth knowing; nobody has to do anything."""
    WARNING = "warning"
    """Somebody has to do something."""


class HealthFinding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `code` never changes once released."""

    code: str
    severity: Severity
    words: str
    action: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """How a ledger is, as of `now`."""

    ledger_id: str
    store: str
    store_version: str
    schema_version: int
    now: datetime
    well: bool
    """Nobody has to do anything."""
    findings: list[HealthFinding]


# The store itself


class StoredFile(msgspec.Struct, frozen=True):
    path: str
    mode: int


class OpenTransaction(msgspec.Struct, frozen=True):
    """The oldest of a kind that somebody has open on the server. Names are empty where this account may not see them."""

    who: str
    age_us: int


class LockedJob(msgspec.Struct, frozen=True):
    """A held or stalled job that another transaction has locked, and for how long that transaction has been open."""

    job_id: int
    who: str
    age_us: int


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the store itself is. None, or empty, where it has no such thing or cannot tell."""

    store: str
    version: str
    schema_version: int
    schema_known: int
    settings: dict[str, str] = {}
    """Those on which it depends that what was acknowledged is kept."""
    files: tuple[StoredFile, ...] = ()
    disk_free_bytes: int | None = None
    oldest: OpenTransaction | None = None
    """Holds back vacuum."""
    writer: OpenTransaction | None = None
    """Holds back whoever follows the total order: its transaction id is the horizon."""
    horizon_xids: int | None = None
    """Transaction ids that were given out since the oldest one still at work was."""
    locked: tuple[LockedJob, ...] = ()
    """Those of the oldest transactions, oldest first."""
    replica: bool = False
    """The server only reads."""
    pooled: bool = False
    """A connection pooler is between this process and the server."""
    poll_ms: int | None = None
    """How often workers look for new work, where no notification can reach them."""
    stopped_writer: int | None = None
    """The process that has SQLite's write lock and was stopped by a signal."""


class Skew(msgspec.Struct, frozen=True):
    """How far the ledger's clock is ahead of this machine's, give or take half of a round trip."""

    ahead_us: int
    round_trip_us: int


# What is in it


class ReadyJobs(msgspec.Struct, frozen=True):
    queue: str
    kind: str
    jobs: int
    since: Micros


class SinkHealth(msgspec.Struct, frozen=True):
    name: str
    failures: int
    dead: bool
    last_error: str | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """How many events there are and how fast they come. Estimates: no table is read as a whole."""

    events: int
    first_at: Micros
    """When the first of them was recorded."""
    bytes: int
    """What the ledger takes on disk, with its jobs and indexes."""
    recent: int
    """Events that came within the last `recent_us`."""
    recent_us: int


class LedgerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What may be stuck. Counts end at COUNT_MAX."""

    now: Micros
    due: int = 0
    """Held and stalled jobs for which a sweep has something to do."""
    owing: int = 0
    """Finished jobs whose undoing has to be started or noted, or whose end has not been told to all."""
    sweeper: str | None = None
    paused: dict[str, QueuePause] = {}
    ready: tuple[ReadyJobs, ...] = ()
    workers: tuple[SeenWorker, ...] = ()
    agent_at: Micros | None = None
    """When any agent was last at work."""
    sinks: tuple[SinkHealth, ...] = ()
    failed: int = 0
    """Failed jobs that nobody has discarded or replayed. A replay that was cancelled does not count."""
    in_vain: int = 0
    """Jobs that wait for one that failed, was cancelled or dead-lettered."""
    dead_letters: int = 0
    """That nobody has discarded."""
    replayed: int = 0
    """Those of them that were started over, and whose newest replay did not come to nothing unseen."""
    signed: tuple[str, ...] = ()
    """Kinds and tiers whose policy wants events signed."""
    server_key: bool = False
    last_pos: int = 0
    sealed_pos: int | None = None
    """None where nothing was ever sealed."""
    history: History | None = None
    """None where there is none yet."""
    sealed_at: Micros = 0


COUNT_MAX = 1_000
