"""Jobs of every status, and ways in which a foreign transaction keeps their rows locked."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from signal import SIGCONT, SIGSTOP
from subprocess import PIPE

import psycopg

from holdfast import Fence, Job, PolicyFields
from tests.blast.fleet import ROOT, SHORT, UNSERVED, Fleet
from tests.support import forked

UNDO = {"kind": "quick", "args": {}}
STRANDED: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "resume_window": 3, "backoff_base": 0}

# Ways to lock. Each yields a function that locks the rows of some jobs until the block ends.

Lock = Callable[[Iterable[int]], object]


@contextmanager
def for_update(fleet: Fleet) -> Iterator[Lock]:
    statement = f"SELECT FROM {fleet.place.schema}.jobs WHERE id = ANY (%s) FOR UPDATE"
    with psycopg.connect(fleet.place.server) as connection:
        yield lambda ids: connection.execute(statement, [list(ids)])
        connection.rollback()


@contextmanager
def dependent(fleet: Fleet) -> Iterator[Lock]:
    with psycopg.connect(fleet.place.server) as connection:
        yield lambda ids: fleet.ledger.enqueue("quick", queue=UNSERVED, depends_on=list(ids), connection=connection)
        connection.rollback()


@contextmanager
def frozen_client(fleet: Fleet) -> Iterator[Lock]:
    command = [sys.executable, "-m", "tests.blast.programs.locker", fleet.url]
    with forked.popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE) as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        assert locker.stdout.readline() == "ready\n"

        def lock(ids: Iterable[int]) -> None:
            assert locker.stdin is not None
            assert locker.stdout is not None
            locker.stdin.write(" ".join(map(str, ids)) + "\n")
            locker.stdin.flush()
            assert locker.stdout.readline() == "locked\n"
            locker.send_signal(SIGSTOP)

        try:
            yield lock
        finally:
            locker.send_signal(SIGCONT)
            locker.communicate("\n", timeout=30)


WAYS: dict[str, Callable[[Fleet], AbstractContextManager[Lock]]] = {
    "for_update": for_update,
    "dependent": dependent,
    "frozen_client": frozen_client,
}

# Jobs of every status


def queued(fleet: Fleet) -> Job:
    """A job that becomes ready while it is locked, in a queue that a worker serves."""
    return fleet.ledger.enqueue("quick", queue=SHORT, delay=2)


def claimed(fleet: Fleet) -> Job:
    """A job that a worker has claimed and not started."""
    [job] = fleet.hold("w1", kind="hold_claimed", go=fleet.folder / "go-on")
    return fleet.became(job.id, "claimed")


def running(fleet: Fleet) -> Job:
    [job] = fleet.hold("w1", go=fleet.folder / "go-on")
    return fleet.became(job.id, "running")


def stalled(fleet: Fleet) -> Job:
    """A job without a holder that is to be requeued while it is locked."""
    job = fleet.ledger.enqueue("stranded", queue=UNSERVED, policy=STRANDED)
    fleet.ledger.claim_job(job.id, "gone")
    return fleet.became(job.id, "stalled")


def succeeded(fleet: Fleet) -> Job:
    return fleet.became(fleet.ledger.enqueue("quick", queue=SHORT).id, "succeeded")


def failed(fleet: Fleet) -> Job:
    return fleet.ledger.fail(_owing(fleet), "broken", retryable=False)


def dead_lettered(fleet: Fleet) -> Job:
    return fleet.ledger.fail(_owing(fleet), "broken", retryable=False, reason_code="policy_violation")


def cancelled(fleet: Fleet) -> Job:
    return fleet.ledger.cancel(_owing(fleet).job_id, hard=True)


def _owing(fleet: Fleet) -> Fence:
    """The fence of a running job with an undo step. When the job has ended, the sweeper must enqueue its undo job."""
    job = fleet.ledger.enqueue("broken", queue=UNSERVED)
    fence = fleet.ledger.claim_job(job.id, "another").fence
    fleet.ledger.start(fence)
    fleet.ledger.heartbeat(fence, undo=UNDO)
    return fence


MAKERS: dict[str, Callable[[Fleet], Job]] = {
    # The job that takes longest to make comes first. Jobs that become due soon come last.
    "stalled": stalled,
    "claimed": claimed,
    "running": running,
    "succeeded": succeeded,
    "queued": queued,
    "failed": failed,
    "dead_lettered": dead_lettered,
    "cancelled": cancelled,
}


def make(fleet: Fleet, statuses: Sequence[str]) -> dict[str, int]:
    """A job of each status."""
    (fleet.folder / "go-on").unlink(missing_ok=True)
    return {status: maker(fleet).id for status, maker in MAKERS.items() if status in statuses}


def let_go(fleet: Fleet) -> None:
    """Let the jobs end that `make` gave to workers."""
    (fleet.folder / "go-on").touch()
