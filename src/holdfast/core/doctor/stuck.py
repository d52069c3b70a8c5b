"""What is to be said of what is in a ledger: everything that nobody is going to move."""

import shlex
from collections import Counter
from collections.abc import Iterator

from holdfast.core.doctor.shapes import COUNT_MAX, Census, Finding, ReadyJobs, Severity
from holdfast.core.explain.shapes import AGENT_SEEN_US, WORKER_SEEN_US, SeenWorker
from holdfast.core.explain.words import count, moment, paused, size, span, typed, when
from holdfast.core.model import Micros

READY_US_MAX = 60_000_000
"""How long jobs may be ready before it is worth a word that nobody serves them."""
REPLACED_US = 30_000_000
"""Workers say every 15 s that they are there. Of two of one name, one that was seen so much earlier has gone."""
UNSEALED_US_MAX = 10 * 60_000_000
NAMED_MAX = 5


def of_contents(census: Census) -> Iterator[Finding]:
    yield _workers(census)
    yield _sweeping(census)
    yield from _retention(census)
    yield from _history(census)
    yield from _paused(census)
    yield from _unserved(census)
    yield from _backlog(census)
    yield _sinks(census)
    yield _failed(census)
    yield from _in_vain(census)
    yield _letters(census)
    if census.signed:
        yield _keys(census)
    if census.sealed_pos is not None:
        yield _seal(census, census.sealed_pos)


def _workers(census: Census) -> Finding:
    lately = _lately(census)
    there = {worker.name for worker in lately}
    silent = sum(worker.name not in there for worker in census.workers)
    if not lately:
        action = "Start one: holdfast worker run MODULE:APP. One that runs may be on another ledger: its log says on which."
        return Finding("workers", Severity.NOTE, "no worker is signed in to this ledger", action)
    words = f"{count(len(lately), 'worker')} {'is' if len(lately) == 1 else 'are'} there, seen {_ages(lately, census.now)} ago"
    return Finding(
        "workers", Severity.WELL, words + (f", {silent} more {'has' if silent == 1 else 'have'} fallen silent" if silent else "")
    )


def _lately(census: Census) -> list[SeenWorker]:
    """Workers that are there. One that was replaced by a newer one of its name is not: it is not seen any more, the other is."""
    newest: dict[str, Micros] = {}
    for worker in census.workers:
        newest[worker.name] = max(newest.get(worker.name, 0), worker.seen_at)
    return [
        worker
        for worker in census.workers
        if census.now - worker.seen_at <= WORKER_SEEN_US and newest[worker.name] - worker.seen_at <= REPLACED_US
    ]


def _ages(workers: list[SeenWorker], now: Micros) -> str:
    ages = sorted(now - worker.seen_at for worker in workers)
    newest, oldest = span(ages[0]), span(ages[-1])
    return newest if newest == oldest else f"{newest} to {oldest}"


def _sweeping(census: Census) -> Finding:
    due = census.due + census.owing
    if census.sweeper is not None:
        return Finding("sweeping", Severity.WELL, f"{census.sweeper} sweeps" + (f"; {_jobs(due)} due" if due else ""))
    if not due:
        return Finding("sweeping", Severity.WELL, "nothing is due, and nobody needs to sweep")
    words = f"{_jobs(due)} past a limit, and nobody sweeps"
    return Finding(
        "sweeping", Severity.WARNING, words, "Start a worker, which sweeps by itself; or once by hand: holdfast sweep."
    )


_RETAINED = {
    "requests": "answers to requests are",
    "beats": "what heartbeats said is",
    "jobs": "finished jobs are",
    "failed": "failed jobs and dead letters that are neither replayed nor discarded are",
}
"""What a worker may delete, by the name that it signs in with."""


def _retention(census: Census) -> Iterator[Finding]:
    """The shortest time that any worker was told: each of them may be the one that deletes."""
    lately = _lately(census)
    if not lately:
        yield Finding("retention", Severity.WELL, "everything is kept while no worker is there: workers delete what is too old")
        return
    words = []
    for name, what in _RETAINED.items():
        times_ms = [kept for worker in lately if (kept := worker.keep_ms.get(name)) is not None]
        words.append(f"{what} deleted after {span(min(times_ms) * 1_000)}" if times_ms else f"{what} kept")
    yield Finding("retention", Severity.WELL, ", ".join(words))


def _history(census: Census) -> Iterator[Finding]:
    found = census.history
    if found is not None:
        grows = found.bytes * found.recent // max(1, found.events)
        there = f"about {count(found.events, 'event')} since {moment(found.first_at):%Y-%m-%d}, {size(found.bytes)}"
        words = (
            f"{there} with jobs and indexes; "
            f"about {found.recent:,} came in the last {span(found.recent_us)}, which is about {size(grows)}"
        )
        yield Finding("history", Severity.WELL, words)


def _jobs(number: int) -> str:
    return f"{_at_most(number, 'job')} {'is' if number == 1 else 'are'}"


def _at_most(number: int, noun: str) -> str:
    return f"{COUNT_MAX:,} {noun}s or more" if number >= COUNT_MAX else count(number, noun)


def _paused(census: Census) -> Iterator[Finding]:
    waiting: Counter[str] = Counter()
    for ready in census.ready:
        waiting[ready.queue] += ready.jobs
    for queue, pause in census.paused.items():
        since = f"it was {paused(pause, census.now)}"
        words = f"{count(waiting[queue], 'job')} of queue {queue} could be claimed, but {since}"
        if not waiting[queue]:
            words = f"queue {queue} is paused; nothing waits in it; {since}"
        action = f"Let it go on: holdfast queue unpause {typed(queue)}."
        yield Finding("queue_paused", Severity.WARNING if waiting[queue] else Severity.NOTE, words, action)


def _unserved(census: Census) -> Iterator[Finding]:
    """Of jobs that could be claimed. Who claims without signing in is not known of."""
    lately = _lately(census)
    for ready in census.ready:
        long = census.now - ready.since > READY_US_MAX
        if long and ready.queue not in census.paused and not any(w.serves(ready.queue, ready.kind) for w in lately):
            words = (
                f"{count(ready.jobs, 'job')} of kind {ready.kind} in queue {ready.queue} can be claimed, the first for "
                f"{span(census.now - ready.since)}, and no worker that serves them is there"
            )
            action = f"Start one: holdfast worker run MODULE:APP --queues {shlex.quote(ready.queue)}."
            if census.agent_at is not None and census.now - census.agent_at <= AGENT_SEEN_US:
                words = f"{words}; agents are at work, the last of them {when(census.agent_at, census.now)}"
                yield Finding("kind_unserved", Severity.NOTE, words, f"Unless it is for agents: {action[0].lower()}{action[1:]}")
            else:
                yield Finding("kind_unserved", Severity.WARNING, words, action)


def _backlog(census: Census) -> Iterator[Finding]:
    """Of queues that somebody serves, all the same."""
    lately = _lately(census)
    served: dict[str, list[ReadyJobs]] = {}
    for ready in census.ready:
        if ready.queue not in census.paused and any(worker.serves(ready.queue, ready.kind) for worker in lately):
            served.setdefault(ready.queue, []).append(ready)
    for queue, found in served.items():
        waits_us = census.now - min(ready.since for ready in found)
        if waits_us > READY_US_MAX:
            jobs = count(sum(ready.jobs for ready in found), "job")
            words = f"{jobs} in queue {queue} can be claimed, the first for {span(waits_us)}"
            action = (
                f"holdfast top shows whether it grows. More hands: holdfast worker run MODULE:APP --queues {shlex.quote(queue)}."
            )
            yield Finding("backlog", Severity.NOTE, words, action)


def _sinks(census: Census) -> Finding:
    dead = [sink for sink in census.sinks if sink.dead]
    if dead:
        named = ", ".join(f"{sink.name} ({sink.last_error})" for sink in dead[:NAMED_MAX])
        action = f"Mend what it says, then: holdfast sink revive {typed(dead[0].name)}."
        return Finding("sinks", Severity.WARNING, f"{count(len(dead), 'sink')} given up on: {named}", action)
    failing = [sink.name for sink in census.sinks if sink.failures]
    if failing:
        return Finding("sinks", Severity.NOTE, f"tried again by themselves: {', '.join(failing[:NAMED_MAX])}")
    words = f"{count(len(census.sinks), 'sink')}, none stuck" if census.sinks else "there are no sinks"
    return Finding("sinks", Severity.WELL, words)


def _failed(census: Census) -> Finding:
    if not census.failed:
        words = "there are no failed jobs" + ("; there are dead letters, see below" if census.dead_letters else "")
        return Finding("failed_jobs", Severity.WELL, words)
    words = f"{_at_most(census.failed, 'failed job')}, neither replayed nor discarded"
    action = "Look at them (holdfast job list --failed), then holdfast job replay or holdfast job discard."
    return Finding("failed_jobs", Severity.WARNING, words, action)


def _in_vain(census: Census) -> Iterator[Finding]:
    if census.in_vain:
        words = f"{_at_most(census.in_vain, 'job')} waiting for a job that failed, was cancelled or dead-lettered"
        action = "holdfast job list --waiting names them. Replay the job that each waits for, or cancel those that wait."
        yield Finding("waits_in_vain", Severity.WARNING, words, action)


def _letters(census: Census) -> Finding:
    if not census.dead_letters:
        return Finding("dead_letters", Severity.WELL, "there are no dead letters")
    left = census.dead_letters - census.replayed
    if not left:
        words = f"{_at_most(census.dead_letters, 'dead letter')}, replayed and not discarded"
        return Finding("dead_letters", Severity.NOTE, words, "Put them aside: holdfast dlq discard --all --replayed.")
    more = f"; {count(census.replayed, 'more is', 'more are')} replayed" if census.replayed else ""
    words = f"{_at_most(left, 'dead letter')} that nobody has replayed or discarded{more}"
    action = "Look at them (holdfast dlq list), then holdfast dlq replay or holdfast dlq discard."
    return Finding("dead_letters", Severity.WARNING, words, action)


def _keys(census: Census) -> Finding:
    named = ", ".join(census.signed[:NAMED_MAX])
    if census.server_key:
        return Finding("server_key", Severity.WELL, f"signed: {named}; a server key is good")
    words = f"signed: {named}; but no server key is good, so no sweep can stall or resume their jobs"
    return Finding("server_key", Severity.WARNING, words, "Make one for whoever sweeps: holdfast key new main --role server.")


def _seal(census: Census, sealed_pos: int) -> Finding:
    behind = max(0, census.last_pos - sealed_pos)
    words = f"{count(behind, 'position')} not sealed yet; the newest head is of {when(census.sealed_at, census.now)}"
    if not behind or census.now - census.sealed_at <= UNSEALED_US_MAX:
        return Finding("seal", Severity.WELL, words)
    return Finding("seal", Severity.WARNING, words, "Let somebody with a server key seal: holdfast seal --key FILE.")
