"""The checks of `doctor`: of the store, and of the ledger's contents."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.core.doctor.flow import check_flow
from holdfast.core.doctor.model import (
    COUNT_MAX,
    HealthFinding,
    LedgerHealth,
    LockedJob,
    OpenTransaction,
    ReadyJobs,
    Severity,
    SinkHealth,
    Skew,
    StoreHealth,
    note,
    warning,
    well,
)
from holdfast.core.explain.formatting import (
    format_bytes,
    format_pause,
    format_when,
    quote_argument,
    to_datetime,
)
from holdfast.core.explain.model import AGENT_SEEN_US, WORKER_SEEN_US, SeenWorker
from holdfast.core.limits import GROUPED_LETTERS_MAX
from holdfast.core.model import Micros
from holdfast.core.schedule import LATE_US
from holdfast.core.text import format_duration, pluralize

DISK_FREE_BYTES_MIN = 1 << 30
LOG_BYTES_MAX = 256 << 20
TRANSACTION_US_MAX = 5 * 60_000_000
LOCKED_US_MAX = 10_000_000
SKEW_US_MAX = 5_000_000
CONNECTIONS_PERCENT_MAX = 80
"""The share of a server's connections that may be in use. A worker that finds none free cannot start."""
WRITABLE_BY_OTHERS = 0o022

DURABLE_SETTINGS = {
    "journal_mode": ("wal",),
    "synchronous": ("full", "extra"),
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "remote_write", "local"),
}
"""The values with which acknowledged writes survive a crash."""


def check_store(store: StoreHealth, skew: Skew | None) -> Iterator[HealthFinding]:
    yield _schema(store)
    yield _durability(store)
    if store.files:
        yield _permissions(store)
    if store.disk_free_bytes is not None:
        yield _disk(store.disk_free_bytes)
    if store.log_bytes is not None and store.log_bytes > LOG_BYTES_MAX:
        yield _log(store.log_bytes, store.log_readers)
    if store.stopped_writer is not None:
        yield _stopped_writer(store.stopped_writer)
    if store.pooled:
        yield _pooler(store.poll_ms)
    if store.replica:
        yield _REPLICA
    if store.connections_max is not None:
        yield _connections(store.connections, store.connections_max)
    if store.horizon_xids is not None:
        yield _oldest_transaction(store.oldest)
        yield _horizon(store.writer, store.horizon_xids)
        yield _locked_jobs(store.locked)
    if skew is not None:
        yield check_clock(skew)


def _schema(store: StoreHealth) -> HealthFinding:
    found, known = store.schema_version, store.schema_known
    if found == known:
        return well("schema", f"schema {found} is the newest that this Holdfast knows")
    words = f"schema {found}, but this Holdfast knows {known}"
    return warning("schema", words, "Run the same version of Holdfast everywhere; opening a ledger migrates it.")


def _durability(store: StoreHealth) -> HealthFinding:
    words = ", ".join(f"{name} = {value}" for name, value in store.settings.items())
    unsafe = [name for name, value in store.settings.items() if value not in DURABLE_SETTINGS[name]]
    if not unsafe:
        return well("durability", words)
    action = (
        f"Set {', '.join(f'{name} = {DURABLE_SETTINGS[name][0]}' for name in unsafe)}: a crash may lose what was acknowledged."
    )
    return warning("durability", words, action)


def _permissions(store: StoreHealth) -> HealthFinding:
    loose = [file for file in store.files if file.mode & WRITABLE_BY_OTHERS]
    if not loose:
        return well("permissions", "only their owner may write to the ledger's files")
    words = f"others may write to {', '.join(f'{file.path} ({file.mode:04o})' for file in loose)}"
    return warning("permissions", words, "Take that right from group and others: chmod go-w.")


def _disk(free_bytes: int) -> HealthFinding:
    words = f"{free_bytes / (1 << 30):,.1f} GiB are free on the ledger's disk"
    if free_bytes >= DISK_FREE_BYTES_MIN:
        return well("disk", words)
    action = (
        "Free some space. Then let a worker prune, so that the file does not grow further: "
        "holdfast worker run MODULE:APP --keep-jobs 30d --keep-beats 1d."
    )
    return warning("disk", words, action)


def _oldest_transaction(oldest: OpenTransaction | None) -> HealthFinding:
    if oldest is None:
        return well("oldest_transaction", "no other transaction is open")
    words = f"the oldest open transaction, {oldest.who}, is {format_duration(oldest.age_us)} old"
    if oldest.age_us <= TRANSACTION_US_MAX:
        return well("oldest_transaction", words)
    return warning("oldest_transaction", words, f"End it: until then nothing is vacuumed. {_TERMINATE}")


_TERMINATE = "SELECT pg_terminate_backend(PID), or ROLLBACK PREPARED."


def _horizon(writer: OpenTransaction | None, xids: int) -> HealthFinding:
    """Check the horizon. An open writing transaction in any database of the server holds back readers of the total order."""
    if writer is None:
        return well("horizon", f"no transaction delays followers; the horizon is {xids:,} transactions old")
    open_for = format_duration(writer.age_us)
    words = f"followers wait for {writer.who}, a writer that has been open for {open_for}, {xids:,} transactions ago"
    if writer.age_us <= TRANSACTION_US_MAX:
        return well("horizon", words)
    return warning("horizon", words, f"End it: sinks, seals and streams see nothing newer. Claims go on. {_TERMINATE}")


def _locked_jobs(locked: tuple[LockedJob, ...]) -> HealthFinding:
    stuck = [job for job in locked if job.age_us > LOCKED_US_MAX]
    if not stuck:
        return well("locked_jobs", f"no job has been locked for more than {format_duration(LOCKED_US_MAX)}")
    words = "; ".join(f"job {job.job_id} is locked by {job.who}, open for {format_duration(job.age_us)}" for job in stuck)
    return warning("locked_jobs", words, f"End it: nothing can be written to the job before. {_TERMINATE}")


def _connections(used: int, usable: int) -> HealthFinding:
    words = f"{used:,} of the server's {usable:,} connections are in use"
    if used * 100 <= usable * CONNECTIONS_PERCENT_MAX:
        return well("connections", words)
    action = (
        "Raise max_connections, use a connection pooler, or run fewer processes: a program that finds none free cannot start."
    )
    return warning("connections", f"{words}, more than {CONNECTIONS_PERCENT_MAX}%", action)


def _pooler(poll_ms: int | None) -> HealthFinding:
    words = "connections go through a pooler: statements are not prepared, and no session state is used"
    if poll_ms is None:
        return well("pooler", words)
    action = "To wake workers at once, add listen=HOST:PORT of the server itself to the url."
    return note("pooler", f"{words}; waiting workers look for new work every {format_duration(poll_ms * 1_000)}", action)


_REPLICA = warning(
    "replica",
    "the server is a read replica: nothing can be written to this ledger",
    "Give the url of the primary server. A url may name several hosts.",
)


def _stopped_writer(pid: int) -> HealthFinding:
    words = f"process {pid} has the write lock and is stopped: nothing can be written"
    return warning("writer", words, f"Continue it (kill -CONT {pid}) or end it.")


def _log(size: int, readers: tuple[int, ...]) -> HealthFinding:
    """Report a write-ahead log that has become large. Without a reader, the next commits make it small again."""
    words = f"the write-ahead log has {format_bytes(size)}"
    if not readers:
        return note("wal", f"{words}; no read transaction is open, so the next commits make it smaller")
    who = f"{'process' if len(readers) == 1 else 'processes'} {', '.join(map(str, readers[:NAMED_MAX]))}"
    words = f"{words}, which grows while {who} {'has' if len(readers) == 1 else 'have'} a read transaction open"
    return warning("wal", words, "End that transaction, or the process, if it stays: see it with ps -p.")


def check_clock(skew: Skew) -> HealthFinding:
    side = "ahead of" if skew.ahead_us >= 0 else "behind"
    apart, margin = format_duration(abs(skew.ahead_us)), _format_skew(skew.round_trip_us // 2)
    words = f"the ledger's clock is {apart} {side} this machine's, give or take {margin}"
    if abs(skew.ahead_us) - skew.round_trip_us // 2 <= SKEW_US_MAX:
        return well("clock", words)
    action = (
        "Set the clocks by the same source. Only the ledger's clock decides; "
        "statements that are signed more than 5 min apart from it are refused."
    )
    return warning("clock", words, action)


def _format_skew(us: int) -> str:
    """Format a duration in milliseconds below 100 ms, where `format_duration` would show 0."""
    return format_duration(us) if us >= 100_000 else f"{max(1, us // 1_000)} ms"  # noqa: PLR2004


READY_US_MAX = 60_000_000
"""How long jobs may be ready before `doctor` reports that no worker serves them."""
REPLACED_US = 30_000_000
"""Workers sign in every 15 s. If two have the same name, one that was seen so much earlier has been replaced."""
UNSEALED_US_MAX = 10 * 60_000_000
UNCOUNTED_MAX = 10_000
"""A reader counts so many events in memory."""
NAMED_MAX = 5


def check_contents(health: LedgerHealth) -> Iterator[HealthFinding]:
    yield _workers(health)
    yield _sweeping(health)
    yield from _retention(health)
    yield from _history(health)
    yield from _paused_queues(health)
    yield from _unserved(health)
    yield from check_flow(health, live_workers(health.workers, health.now), READY_US_MAX)
    yield from _backlog(health)
    yield from _schedules(health)
    yield from _groups(health)
    yield _sinks(health)
    yield _failed_jobs(health)
    yield from _waiting_for_failed(health)
    yield _dead_letters(health)
    if health.signed:
        yield _keys(health)
    if health.sealed_pos is not None:
        yield _seal(health)
    if health.uncounted is not None:
        yield _counting(health.uncounted, health.counter)


def _workers(health: LedgerHealth) -> HealthFinding:
    lately = _live_workers(health)
    there = {worker.name for worker in lately}
    silent = sum(worker.name not in there for worker in health.workers)
    if not lately:
        action = "Start one: holdfast worker run MODULE:APP. A running worker may use another ledger: its log names it."
        return note("workers", "no worker is signed in to this ledger", action)
    workers = f"{pluralize(len(lately), 'worker')} {'is' if len(lately) == 1 else 'are'} signed in"
    others = f", {silent} more {'is' if silent == 1 else 'are'} silent" if silent else ""
    return well("workers", f"{workers}, seen {_ages(lately, health.now)} ago{others}")


def _live_workers(health: LedgerHealth) -> list[SeenWorker]:
    return live_workers(health.workers, health.now)


def live_workers(workers: Sequence[SeenWorker], now: Micros) -> list[SeenWorker]:
    """Return the workers that were seen lately, without those that a newer worker of the same name has replaced."""
    newest: dict[str, Micros] = {}
    for worker in workers:
        newest[worker.name] = max(newest.get(worker.name, 0), worker.seen_at)
    return [
        worker
        for worker in workers
        if now - worker.seen_at <= WORKER_SEEN_US and newest[worker.name] - worker.seen_at <= REPLACED_US
    ]


def _ages(workers: list[SeenWorker], now: Micros) -> str:
    ages = sorted(now - worker.seen_at for worker in workers)
    newest, oldest = format_duration(ages[0]), format_duration(ages[-1])
    return newest if newest == oldest else f"{newest} to {oldest}"


def _sweeping(health: LedgerHealth) -> HealthFinding:
    due = health.due + health.owing
    if health.sweeper is not None:
        return well("sweeping", f"{health.sweeper} sweeps" + (f"; {_format_jobs(due)} due" if due else ""))
    if not due:
        return well("sweeping", "nothing is due, and no sweep is needed")
    words = f"{_format_jobs(due)} due for a sweep, and no worker sweeps"
    return warning("sweeping", words, "Start a worker, which sweeps by itself; or once by hand: holdfast sweep.")


_RETENTION_NAMES = {
    "requests": "answers to requests are",
    "beats": "contents of heartbeats are",
    "jobs": "finished jobs are",
    "failed": "failed jobs and dead letters that are neither replayed nor discarded are",
}
"""What a worker may delete, by the key in its sign-in record."""


def _retention(health: LedgerHealth) -> Iterator[HealthFinding]:
    """Report the shortest retention of all workers, because each of them may be the one that deletes."""
    lately = _live_workers(health)
    if not lately:
        yield well("retention", "everything is kept while no worker runs: only workers delete old data")
        return
    words = []
    for name, what in _RETENTION_NAMES.items():
        times_ms = [kept for worker in lately if (kept := worker.keep_ms.get(name)) is not None]
        words.append(f"{what} deleted after {format_duration(min(times_ms) * 1_000)}" if times_ms else f"{what} kept")
    yield well("retention", ", ".join(words))


def _history(health: LedgerHealth) -> Iterator[HealthFinding]:
    found = health.history
    if found is not None:
        grows = found.bytes * found.recent // max(1, found.events)
        there = (
            f"about {pluralize(found.events, 'event')} since {to_datetime(found.first_at):%Y-%m-%d}, {format_bytes(found.bytes)}"
        )
        words = (
            f"{there} with jobs and indexes; "
            f"about {found.recent:,} came in the last {format_duration(found.recent_us)}, which is about {format_bytes(grows)}"
        )
        yield well("history", words)


def _format_jobs(number: int) -> str:
    return f"{_format_capped(number, 'job')} {'is' if number == 1 else 'are'}"


def _format_capped(number: int, noun: str) -> str:
    return f"{COUNT_MAX:,} {noun}s or more" if number >= COUNT_MAX else pluralize(number, noun)


def _format_letters(number: int, health: LedgerHealth) -> str:
    return f"{pluralize(number, 'dead letter')}{' or more' if health.dead_letters >= GROUPED_LETTERS_MAX else ''}"


def _paused_queues(health: LedgerHealth) -> Iterator[HealthFinding]:
    waiting: Counter[str] = Counter()
    for ready in health.ready:
        waiting[ready.queue] += ready.jobs
    for queue, pause in health.paused.items():
        since = f"it was {format_pause(pause, health.now)}"
        words = f"{pluralize(waiting[queue], 'job')} of queue {queue} could be claimed, but {since}"
        if not waiting[queue]:
            words = f"queue {queue} is paused; nothing waits in it; {since}"
        action = f"Unpause it: holdfast queue unpause {quote_argument(queue)}."
        yield HealthFinding("queue_paused", Severity.WARNING if waiting[queue] else Severity.NOTE, words, action)


def _schedules(health: LedgerHealth) -> Iterator[HealthFinding]:
    for found in health.schedules:
        late_us = 0 if found.fire_at is None else health.now - found.fire_at
        if late_us > LATE_US:
            words = f"schedule {found.name} should have made a job {format_duration(late_us)} ago"
            action = "Start a worker or a server: they make the jobs of schedules. Once by hand: holdfast sweep."
            yield warning("schedule_late", words, action)
        if found.last_error is not None:
            words = f"the last firing of schedule {found.name} had an error: {found.last_error}"
            action = f"See its options: holdfast schedule get {quote_argument(found.name)}. Add it again to change them."
            yield warning("schedule_refused", words, action)


def _groups(health: LedgerHealth) -> Iterator[HealthFinding]:
    for found in health.groups:
        name = quote_argument(found.name)
        if found.last_error is not None:
            words = f"group {found.name} could not make its follow-up job: {found.last_error}"
            action = (
                f"Remove the cause, then try again: holdfast group close {name}. Or do without it: holdfast group cancel {name}."
            )
            yield warning("group_refused", words, action)
        elif found.is_open:
            words = f"group {found.name} is open and has no live job ({found.jobs:,} ended): nothing follows until it is closed"
            yield warning("group_open", words, f"If no more join: holdfast group close {name}.")
        else:
            dead = f"{found.dead} of {pluralize(found.jobs, 'job')}"
            words = f"group {found.name} is done, but {dead} did not succeed: its follow-up job is not made"
            severity = Severity.NOTE if found.has_told else Severity.WARNING
            yield HealthFinding("group_dead", severity, words, f"Replay them: holdfast group replay {name}.")


def _unserved(health: LedgerHealth) -> Iterator[HealthFinding]:
    """Report jobs that could be claimed but that no worker serves. Claimants that do not sign in are unknown here."""
    lately = _live_workers(health)
    for ready in health.ready:
        long = health.now - ready.since > READY_US_MAX
        if long and ready.queue not in health.paused and not any(w.serves(ready.queue, ready.kind) for w in lately):
            words = (
                f"{pluralize(ready.jobs, 'job')} of kind {ready.kind} in queue {ready.queue} can be claimed, the first for "
                f"{format_duration(health.now - ready.since)}, and no running worker serves them"
            )
            action = f"Start one: holdfast worker run MODULE:APP --queues {shlex.quote(ready.queue)}."
            if health.agent_at is not None and health.now - health.agent_at <= AGENT_SEEN_US:
                words = f"{words}; agents are active, the last of them {format_when(health.agent_at, health.now)}"
                yield note("kind_unserved", words, f"Unless it is for agents: {action[0].lower()}{action[1:]}")
            else:
                yield warning("kind_unserved", words, action)


def _backlog(health: LedgerHealth) -> Iterator[HealthFinding]:
    """Report jobs that have waited too long in queues that workers do serve."""
    lately = _live_workers(health)
    served: dict[str, list[ReadyJobs]] = {}
    for ready in health.ready if health.routable is None else health.routable:
        if ready.queue not in health.paused and any(worker.serves(ready.queue, ready.kind) for worker in lately):
            served.setdefault(ready.queue, []).append(ready)
    for queue, found in served.items():
        waits_us = health.now - min(ready.since for ready in found)
        if waits_us > READY_US_MAX:
            jobs = pluralize(sum(ready.jobs for ready in found), "job")
            words = f"{jobs} in queue {queue} can be claimed, the first for {format_duration(waits_us)}"
            action = (
                "holdfast top shows whether it grows. "
                f"To add a worker: holdfast worker run MODULE:APP --queues {shlex.quote(queue)}."
            )
            yield note("backlog", words, action)


def _sinks(health: LedgerHealth) -> HealthFinding:
    dead = [sink for sink in health.sinks if sink.dead]
    if dead:
        named = ", ".join(f"{sink.name} ({sink.last_error})" for sink in dead[:NAMED_MAX])
        action = f"Fix the cause, then: holdfast sink revive {quote_argument(dead[0].name)}."
        return warning("sinks", f"{pluralize(len(dead), 'sink')} {'is' if len(dead) == 1 else 'are'} dead: {named}", action)
    left = [sink for sink in health.sinks if sink.relay is None and _waits_long(sink, health.now)]
    if left:
        named = ", ".join(f"{sink.name} ({pluralize(sink.waiting, 'event')})" for sink in left[:NAMED_MAX])
        action = (
            "Start a server or a worker that has this sink. "
            f"If it is not needed any more: holdfast sink drop {quote_argument(left[0].name)}."
        )
        return warning("sinks", f"events wait, and no process delivers them: {named}", action)
    failing = [sink.name for sink in health.sinks if sink.failures]
    if failing:
        return note("sinks", f"retried automatically: {', '.join(failing[:NAMED_MAX])}")
    words = f"{pluralize(len(health.sinks), 'sink')}, none stuck" if health.sinks else "there are no sinks"
    return well("sinks", words)


def _waits_long(sink: SinkHealth, now: Micros) -> bool:
    return bool(sink.waiting) and now - sink.waiting_since > READY_US_MAX


def _failed_jobs(health: LedgerHealth) -> HealthFinding:
    if not health.failed:
        words = "there are no failed jobs" + ("; there are dead letters, see below" if health.dead_letters else "")
        return well("failed_jobs", words)
    words = f"{_format_capped(health.failed, 'failed job')}, neither replayed nor discarded"
    action = "Look at them (holdfast job list --failed), then holdfast job replay or holdfast job discard."
    return warning("failed_jobs", words, action)


def _waiting_for_failed(health: LedgerHealth) -> Iterator[HealthFinding]:
    if health.in_vain:
        words = f"{_format_capped(health.in_vain, 'job')} waiting for a job that failed, was cancelled or dead-lettered"
        action = "holdfast job list --waiting names them. Replay the job that each waits for, or cancel those that wait."
        yield warning("waits_in_vain", words, action)


def _dead_letters(health: LedgerHealth) -> HealthFinding:
    if not health.dead_letters:
        return well("dead_letters", "there are no dead letters")
    left = health.dead_letters - health.replayed
    if not left:
        words = f"{_format_letters(health.dead_letters, health)}, replayed and not discarded"
        return note("dead_letters", words, "Discard them: holdfast dlq discard --all --replayed.")
    more = f"; {pluralize(health.replayed, 'more is', 'more are')} replayed" if health.replayed else ""
    words = f"{_format_letters(left, health)}, neither replayed nor discarded{more}"
    action = "Look at them (holdfast dlq list), then holdfast dlq replay or holdfast dlq discard."
    return warning("dead_letters", words, action)


def _keys(health: LedgerHealth) -> HealthFinding:
    named = ", ".join(health.signed[:NAMED_MAX])
    if health.server_key:
        return well("server_key", f"signed: {named}; there is a valid server key")
    words = f"signed: {named}; but no server key is valid, so no sweep can stall or resume their jobs"
    return warning("server_key", words, "Make one for the sweeper: holdfast key new main --role server.")


def _seal(health: LedgerHealth) -> HealthFinding:
    behind = health.unsealed
    who = "no process seals" if health.sealer is None else f"{health.sealer} seals"
    newest = format_when(health.sealed_at, health.now)
    words = f"{pluralize(behind, 'event')} not sealed yet; the newest head is of {newest}; {who}"
    if not behind or health.now - health.sealed_at <= UNSEALED_US_MAX:
        return well("seal", words)
    return warning("seal", words, "Seal it with a server key: holdfast seal --key FILE.")


def _counting(uncounted: int, counter: str | None) -> HealthFinding:
    """Report whether totals and history are up to date. Readers count what is missing, but not events of deleted jobs."""
    if not uncounted:
        return well("counting", "all events are in totals and history")
    left = f"{pluralize(uncounted, 'event')} not kept in totals and history yet"
    if counter is not None or uncounted <= UNCOUNTED_MAX:
        return well("counting", f"{left}; {counter or 'the next reader'} counts them")
    return note("counting", f"{left}, and no process counts", "Start a server: holdfast serve.")
