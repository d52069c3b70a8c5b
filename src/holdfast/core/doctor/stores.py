"""What is to be said of the store itself."""

from collections.abc import Iterator

from holdfast.core.doctor.shapes import Finding, LockedJob, OpenTransaction, Severity, Skew, Vitals
from holdfast.core.explain.words import span

DISK_FREE_BYTES_MIN = 1 << 30
TRANSACTION_US_MAX = 5 * 60_000_000
LOCKED_US_MAX = 10_000_000
SKEW_US_MAX = 5_000_000
WRITABLE_BY_OTHERS = 0o022

SAFE = {
    "journal_mode": ("wal",),
    "synchronous": ("full", "extra"),
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "remote_write", "local"),
}
"""The values under which what was acknowledged survives a crash."""


def of_store(vitals: Vitals, skew: Skew | None) -> Iterator[Finding]:
    yield _schema(vitals)
    yield _durability(vitals)
    if vitals.files:
        yield _permissions(vitals)
    if vitals.disk_free_bytes is not None:
        yield _disk(vitals.disk_free_bytes)
    if vitals.stopped_writer is not None:
        yield _stopped(vitals.stopped_writer)
    if vitals.pooled:
        yield _pooler(vitals.poll_ms)
    if vitals.replica:
        yield _REPLICA
    if vitals.horizon_xids is not None:
        yield _oldest(vitals.oldest)
        yield _horizon(vitals.writer, vitals.horizon_xids)
        yield _locked(vitals.locked)
    if skew is not None:
        yield _clock(skew)


def _schema(vitals: Vitals) -> Finding:
    found, known = vitals.schema_version, vitals.schema_known
    if found == known:
        return Finding("schema", Severity.WELL, f"schema {found} is the newest that this Holdfast knows")
    words = f"schema {found}, but this Holdfast knows {known}"
    return Finding(
        "schema", Severity.WARNING, words, "Run the same version of Holdfast everywhere; opening a ledger migrates it."
    )


def _durability(vitals: Vitals) -> Finding:
    told = ", ".join(f"{name} = {value}" for name, value in vitals.settings.items())
    unsafe = [name for name, value in vitals.settings.items() if value not in SAFE[name]]
    if not unsafe:
        return Finding("durability", Severity.WELL, told)
    action = f"Set {', '.join(f'{name} = {SAFE[name][0]}' for name in unsafe)}: a crash may lose what was acknowledged."
    return Finding("durability", Severity.WARNING, told, action)


def _permissions(vitals: Vitals) -> Finding:
    loose = [file for file in vitals.files if file.mode & WRITABLE_BY_OTHERS]
    if not loose:
        return Finding("permissions", Severity.WELL, "only their owner may write to the ledger's files")
    words = f"others may write to {', '.join(f'{file.path} ({file.mode:04o})' for file in loose)}"
    return Finding("permissions", Severity.WARNING, words, "Take that right from group and others: chmod go-w.")


def _disk(free_bytes: int) -> Finding:
    words = f"{free_bytes / (1 << 30):,.1f} GiB are free on the ledger's disk"
    if free_bytes >= DISK_FREE_BYTES_MIN:
        return Finding("disk", Severity.WELL, words)
    action = (
        "Make room there. A worker that prunes keeps the file from growing further, once there is room to start one: "
        "holdfast worker run MODULE:APP --keep-jobs 30d --keep-beats 1d."
    )
    return Finding("disk", Severity.WARNING, words, action)


def _oldest(oldest: OpenTransaction | None) -> Finding:
    if oldest is None:
        return Finding("oldest_transaction", Severity.WELL, "no other transaction is open")
    words = f"the oldest open transaction, {oldest.who}, is {span(oldest.age_us)} old"
    if oldest.age_us <= TRANSACTION_US_MAX:
        return Finding("oldest_transaction", Severity.WELL, words)
    return Finding("oldest_transaction", Severity.WARNING, words, f"End it: until then nothing is vacuumed. {_TERMINATE}")


_TERMINATE = "SELECT pg_terminate_backend(PID), or ROLLBACK PREPARED."


def _horizon(writer: OpenTransaction | None, xids: int) -> Finding:
    """Trap: an open writing transaction anywhere on the server holds back whoever follows the total order."""
    if writer is None:
        return Finding("horizon", Severity.WELL, f"followers are held back by nobody; the horizon is {xids:,} transactions old")
    words = f"followers wait for {writer.who}, a writer that has been open for {span(writer.age_us)}, {xids:,} transactions ago"
    if writer.age_us <= TRANSACTION_US_MAX:
        return Finding("horizon", Severity.WELL, words)
    return Finding(
        "horizon", Severity.WARNING, words, f"End it: sinks, seals and streams see nothing newer. Claims go on. {_TERMINATE}"
    )


def _locked(locked: tuple[LockedJob, ...]) -> Finding:
    stuck = [job for job in locked if job.age_us > LOCKED_US_MAX]
    if not stuck:
        return Finding("locked_jobs", Severity.WELL, f"no job has been locked for more than {span(LOCKED_US_MAX)}")
    words = "; ".join(f"job {job.job_id} is locked by {job.who}, open for {span(job.age_us)}" for job in stuck)
    return Finding("locked_jobs", Severity.WARNING, words, f"End it: nothing can be written to the job before. {_TERMINATE}")


def _pooler(poll_ms: int | None) -> Finding:
    words = "a connection pooler is in between: nothing is prepared, and no session is relied on"
    if poll_ms is None:
        return Finding("pooler", Severity.WELL, words)
    action = "To wake workers at once, add listen=HOST:PORT of the server itself to the url."
    return Finding("pooler", Severity.NOTE, f"{words}; waiting workers look for new work every {span(poll_ms * 1_000)}", action)


_REPLICA = Finding(
    "replica",
    Severity.WARNING,
    "the server is a read replica: nothing can be written to this ledger",
    "Give the url of the primary server. A url may name several hosts.",
)


def _stopped(pid: int) -> Finding:
    words = f"process {pid} has the write lock and is stopped: nothing can be written"
    return Finding("writer", Severity.WARNING, words, f"Let it go on (kill -CONT {pid}) or end it.")


def _clock(skew: Skew) -> Finding:
    side = "ahead of" if skew.ahead_us >= 0 else "behind"
    words = (
        f"the ledger's clock is {span(abs(skew.ahead_us))} {side} this machine's, give or take {_margin(skew.round_trip_us // 2)}"
    )
    if abs(skew.ahead_us) - skew.round_trip_us // 2 <= SKEW_US_MAX:
        return Finding("clock", Severity.WELL, words)
    action = "Set the clocks by the same source. The ledger's alone decides; what is signed with another is refused beyond 5 min."
    return Finding("clock", Severity.WARNING, words, action)


def _margin(us: int) -> str:
    """In milliseconds below 100 ms, where `span` has nothing to tell."""
    return span(us) if us >= 100_000 else f"{max(1, us // 1_000)} ms"  # noqa: PLR2004
