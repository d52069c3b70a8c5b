"""A transaction is left open that has enqueued with a dedupe key, a request id or a dependency. A call that needs the same
gets an answer or a refusal in bounded time, and no other call waits with it."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from holdfast import HoldfastError, Job
from tests.blast.fleet import ROOT, UNSERVED, Fleet
from tests.blast.programs.jobs import LEASE
from tests.blast.watch import Watch

SECONDS = 6.0
"""Longer than a lease."""
ANSWER_SECONDS = 12.0
"""A call that waits for a foreign transaction has ended by then. Much longer than it takes on an idle machine."""


class Call:
    """A call in its own thread, and its outcome."""

    def __init__(self, call: Callable[[], Job]) -> None:
        self.came_to = ""
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.came_to = f"job {self._call().id}"
        except HoldfastError as error:
            self.came_to = error.code

    def ended(self, seconds: float) -> str:
        self._thread.join(seconds)
        return self.came_to


class Beats:
    """A client that also holds a lease, and sends heartbeats over the same ledger object as the call."""

    def __init__(self, fleet: Fleet) -> None:
        self.job_id = fleet.ledger.enqueue("held by a client", queue=UNSERVED, policy=LEASE).id
        self._fence = fleet.ledger.claim_job(self.job_id, "client").fence
        assert self._fence is not None
        self._ledger = fleet.ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            assert self._fence is not None
            try:
                self._ledger.heartbeat(self._fence)
            except HoldfastError:
                return

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


@pytest.mark.parametrize("verb", [pytest.param("enqueue", marks=pytest.mark.torture), "replay"])
def test_a_dedupe_key_in_an_open_transaction_delays_no_other_call(fleet: Fleet, verb: str) -> None:
    """The same process enqueues the key again, and sends heartbeats for an unrelated job."""
    key, ledger = f"key of {verb}", fleet.open()
    gone = ledger.enqueue("quick", queue=UNSERVED, dedupe_key=key)
    ledger.cancel(gone.id, hard=True)
    again = {
        "enqueue": lambda: fleet.ledger.enqueue("quick", queue=UNSERVED, dedupe_key=key),
        "replay": lambda: fleet.ledger.replay(gone.id),
    }[verb]
    beats = Beats(fleet)
    fleet.held[beats.job_id] = "a client"
    try:
        with Watch(fleet) as watch, psycopg.connect(fleet.place.server) as connection:
            mine = ledger.enqueue("quick", queue=UNSERVED, dedupe_key=key, connection=connection)
            call = Call(again)
            watch.during(SECONDS)
            came_to = call.ended(ANSWER_SECONDS)
            connection.commit()
        assert came_to in {"conflict", "unavailable"}, f"with the key in an open transaction, {verb} came to {came_to!r}"
        assert ledger.get(mine.id).status == "queued"
        assert Call(again).ended(ANSWER_SECONDS) == (f"job {mine.id}" if verb == "enqueue" else "conflict")
    finally:
        beats.stop()
        del fleet.held[beats.job_id]
        ledger.close()


def test_a_request_id_in_an_open_transaction_does_not_stop_its_process(fleet: Fleet) -> None:
    """Two threads of one process send it; the first makes a plain call before it commits."""
    command = [sys.executable, "-m", "tests.blast.programs.same_request", fleet.url]
    with Watch(fleet) as watch:
        begun = time.monotonic()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                watch.during(2)
                said, _ = process.communicate(timeout=ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                blocked = fleet.query("SELECT query FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0")
                raise AssertionError(f"the process hangs after {time.monotonic() - begun:.0f} s in {blocked}") from None
            finally:
                process.kill()
    answers = json.loads(said)
    first = answers["in a transaction"]
    assert first.startswith("job ")
    assert answers["plain"].startswith("job ")
    assert answers["repeated"] in {"conflict", "unavailable", first}, answers
    assert answers["afterwards"] == first, answers


def test_handlers_that_lock_their_own_jobs_harm_no_other_job_of_their_workers(fleet: Fleet) -> None:
    """Two then save a checkpoint, which is stored or refused in bounded time. One runs past its time limit."""
    waiting = {"w1": "dependent", "w2": "for_update"}
    with Watch(fleet) as watch:
        jobs = {way: fleet.ledger.enqueue("wait_for_itself", {"way": way}, queue=worker).id for worker, way in waiting.items()}
        late = fleet.ledger.enqueue("outlast", queue="w3").id
        watch.during(SECONDS)
    for way, job_id in jobs.items():
        found = fleet.became(job_id, "succeeded", "failed", "dead_lettered", seconds=ANSWER_SECONDS)
        assert found.status == "succeeded", fleet.describe(job_id)
        assert found.result == "kept" or found.result.startswith(("unavailable", "conflict")), (way, found.result)
    found = fleet.became(late, "succeeded", "failed", "dead_lettered", seconds=ANSWER_SECONDS)
    assert "took longer than" in str(found.dead_letter), f"{found.result}: {fleet.describe(late)}"
