"""Functions that the processes of a fleet run."""

import random
import time
from collections.abc import Callable
from typing import Any

import holdfast

Go = Callable[[], None]


def claim_all(number: int, go: Go, *, url: str, limit: int) -> list[list[int]]:
    """Claim until no job is left. Return every job and attempt."""
    with holdfast.open(url) as ledger:
        go()
        held: list[list[int]] = []
        while jobs := ledger.claim(f"worker-{number}", limit=limit):
            held += [[job.id, job.attempt] for job in jobs]
        return held


def drain(number: int, go: Go, *, url: str, limit: int) -> int:
    """Claim, start and complete until no job is left. Return their number."""
    with holdfast.open(url) as ledger:
        go()
        done = 0
        while jobs := ledger.claim(f"worker-{number}", limit=limit, start=True):
            answers = ledger.complete_many([(job.fence, {"by": number}) for job in jobs])
            assert all(isinstance(answer, holdfast.Change) for answer in answers)
            done += len(answers)
        return done


def check_all(number: int, go: Go, *, url: str, ids: list[int], parts: int) -> list[str]:
    """The problems of this process's share of the jobs."""
    with holdfast.open(url) as ledger:
        go()
        return [str(problem) for id_ in ids[number::parts] for problem in ledger.check(id_)]


def write_out_of_order(number: int, go: Go, *, url: str, rounds: int) -> int:
    """Batches of very different sizes, so that transactions overlap and commit in another order than they began."""
    chance = random.Random(number)
    with holdfast.open(url) as ledger:
        go()
        events = 0
        for _ in range(rounds):
            size = chance.choice([1, 1, 1, 5, 40, 200])
            events += len(ledger.enqueue_many([{"kind": "write", "queue": f"q{chance.randrange(3)}"}] * size))
            jobs = ledger.claim(f"w{number}", ["q0", "q1", "q2"], limit=chance.choice([1, 10, 100]), start=True)
            events += 2 * len(jobs)
            fences = [job.fence for job in jobs]
            events += sum(isinstance(beat, holdfast.Beat) for beat in ledger.heartbeat_many(fences))
            done = ledger.complete_many([(fence, None) for fence in fences if chance.random() < 0.7])
            events += sum(isinstance(change, holdfast.Change) for change in done)
        return events


def enqueue_key(number: int, go: Go, *, url: str, key: str) -> list[Any]:
    with holdfast.open(url) as ledger:
        go()
        job = ledger.enqueue("once", {"by": number}, dedupe_key=key)
        return [job.id, job.is_new]


def postpone_key(number: int, go: Go, *, url: str, key: str, calls: int) -> list[Any]:
    """Call again and again with one key. Each call has its own arguments."""
    with holdfast.open(url) as ledger:
        go()
        options: Any = {"dedupe_key": key, "delay": "1h", "on_duplicate": "postpone", "postpone_max": "1d"}
        jobs = [ledger.enqueue("once", {"by": number, "call": call}, **options) for call in range(calls)]
        return [[job.id, job.is_new, job.rev] for job in jobs]


def replace_and_run(number: int, go: Go, *, url: str, key: str, calls: int) -> list[Any]:
    """Every other process calls with one key, and the others run what they get."""
    with holdfast.open(url) as ledger:
        go()
        if number % 2:
            options: Any = {"dedupe_key": key, "on_duplicate": "replace"}
            return [ledger.enqueue("once", {"by": number, "call": call}, **options).id for call in range(calls)]
        done = []
        for _ in range(calls):
            for job in ledger.claim(f"w-{number}", start=True):
                ledger.complete(job.fence, None)
                done.append(job.id)
        return done


def open_at_once(number: int, go: Go, *, url: str) -> list[Any]:
    go()
    with holdfast.open(url) as ledger:
        return [ledger.id, ledger.enqueue("first", {"by": number}).id]


def open_version(number: int, go: Go, *, url: str) -> list[Any]:
    go()
    with holdfast.open(url) as ledger:
        return [ledger.id, ledger.schema.version, ledger.enqueue("later", {"by": number}).id]


def write_for(number: int, go: Go, *, url: str, seconds: float) -> int:
    """Return how many transactions this process committed in the time."""
    with holdfast.open(url) as ledger:
        ledger.enqueue("warm")
        go()
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            ledger.enqueue("write")
            count += 1
        return count


def beat_opposed(number: int, go: Go, *, url: str, fences: list[list[Any]], rounds: int) -> list[int]:
    """Send beats for all fences, in opposite order in odd processes. Return how many were accepted and refused."""
    mine = [holdfast.Fence(*fence) for fence in fences]
    if number % 2:
        mine.reverse()
    with holdfast.open(url) as ledger:
        go()
        answers = [beat for _ in range(rounds) for beat in ledger.heartbeat_many(mine)]
        good = sum(isinstance(answer, holdfast.Beat) for answer in answers)
        return [good, len(answers) - good]


def same_request(number: int, go: Go, *, url: str, request_id: str) -> list[Any]:
    """One claim with one request id, sent by every process."""
    with holdfast.open(url) as ledger:
        go()
        jobs = ledger.claim("twin", limit=5, request_id=request_id, incarnation="one")
        return sorted([job.id, job.attempt, job.fence.token] for job in jobs)


def check_first_fence(number: int, go: Go, *, url: str) -> bool:
    """Check the first fence of a PostgreSQL database, in many processes at once."""
    import psycopg

    with psycopg.connect(url) as connection:
        go()
        holdfast.check_fence(connection, f"resource-{number}", holdfast.Fence(1, 1, "token"))
    return True


def check_first_fence_in_file(number: int, go: Go, *, path: str) -> bool:
    import apsw

    connection = apsw.Connection(path)
    connection.set_busy_timeout(30_000)
    go()
    connection.execute("BEGIN IMMEDIATE")
    holdfast.check_fence(connection, f"resource-{number}", holdfast.Fence(1, 1, "token"))
    connection.execute("COMMIT")
    return True


def take_duty(number: int, go: Go, *, url: str, rounds: int) -> list[bool]:
    """Take duties that all processes want at the same time. Return which of them this process got."""
    with holdfast.open(url) as ledger:
        go()
        return [ledger.take_duty(f"duty-{at}", f"process-{number}", ttl="1h") for at in range(rounds)]
