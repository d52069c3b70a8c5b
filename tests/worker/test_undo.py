"""Undo jobs: the steps of a job that did not succeed are undone one by one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import App, AsyncContext, Context, Job, PermanentError, TransientError
from holdfast.errors import ValidationError
from holdfast.testing import ManualClock, NoJitter, check_all, drain
from tests.support.processes import ROOT
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, dead, ended


class Site:
    """An app whose handler `build` puts up stones, each with an undo step. Removed stones are recorded."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.down: list[Any] = []
        """The removed stones, in order."""

        @app.handler()
        def take_down(stone: str) -> None:
            self.down.append(stone)

        @app.handler(attempts_max=2)
        def build(job: Context, stones: list[str], then: str) -> None:
            for stone in stones:
                job.undo(take_down, stone=stone)
            match then:
                case "fail":
                    raise PermanentError("it fell")
                case "raise":
                    job.undo(take_down, stone=f"attempt {job.job.attempt}")
                    raise OSError("rain")
                case "soft" | "hard":
                    app.ledger.cancel(job.job.id, hard=then == "hard")
                    job.check_cancelled()

    def put_up(self, *stones: str, then: str = "fail") -> Job:
        return self.app.enqueue("build", stones=list(stones), then=then)

    def put_up_around(self, step: str) -> Job:
        """Enqueue a job with three undo steps, of which the second is of this kind."""

        @self.app.handler("mixed")
        def mixed(job: Context) -> None:
            job.undo("take_down", stone="first")
            job.undo(step)
            job.undo("take_down", stone="last")
            raise PermanentError("it fell")

        return self.app.enqueue(mixed)

    @property
    def undo_job(self) -> Job:
        [found] = [job for job in self.app.ledger.list(kind="holdfast.undo") if job.replay_of is None]
        return found

    def notes(self, job: Job) -> list[str]:
        types = ["compensated", "compensation_failed"]
        return [event.type.value for event in self.app.ledger.events(job.id, types=types)]


@pytest.fixture
def still(store_url: str, clock: ManualClock) -> Iterator[App]:
    """An app on a manual clock."""
    app = App(store_url, clock=clock, entropy=NoJitter())
    yield app
    assert check_all(app.ledger) == []
    app.close()


@pytest.fixture
def site(still: App) -> Site:
    return Site(still)


# When


def test_a_permanent_failure_undoes_the_newest_step_first(site: Site) -> None:
    job = site.put_up("a", "b", "c")
    assert drain(site.app).counts == {"failed": 1, "succeeded": 1}
    assert site.down == ["c", "b", "a"]
    assert (site.undo_job.result, site.undo_job.checkpoint) == ({"done": 3}, {"done": 3})
    assert (site.notes(job), site.app.ledger.get(job.id).status) == (["compensated"], "failed")
    note = site.app.ledger.events(job.id)[-1]
    assert (note.actor, note.request_id) == ("system:ledger", f"undo-{job.id}")


# Workers


@pytest.mark.parametrize("of", ["def", "async def"])
def test_a_worker_runs_undo_jobs(app: App, start: Starter, of: str) -> None:
    down: list[int] = []

    @app.handler()
    def take_down(job: Context, n: int) -> None:
        job.beat(stage=f"taking {n}")
        down.append(n)

    @app.handler()
    async def take_down_later(job: AsyncContext, n: int) -> None:
        await job.beat(stage=f"taking {n}")
        down.append(n)

    @app.handler()
    async def build(job: AsyncContext) -> None:
        await job.undo(take_down if of == "def" else take_down_later, n=1)
        await job.undo(take_down_later if of == "def" else take_down, n=2)
        raise PermanentError("it fell")

    job = app.enqueue(build)
    start()
    wait_until(lambda: app.ledger.get(job.id).note)
    assert (app.ledger.get(job.id).note, down) == ("compensated", [2, 1])
    [undo] = app.ledger.list(kind="holdfast.undo")
    assert ended(app, undo).stage == "taking 1"


def test_a_worker_with_only_async_handlers_runs_undo_jobs(app: App, start: Starter) -> None:
    @app.handler()
    async def take_down() -> None: ...

    @app.handler()
    async def build(job: AsyncContext) -> None:
        await job.undo(take_down)
        raise PermanentError("it fell")

    job = app.enqueue(build)
    start()
    wait_until(lambda: app.ledger.get(job.id).note == "compensated")


def test_a_step_that_takes_too_long_is_timed_out(app: App, start: Starter) -> None:
    tries: list[int] = []

    @app.handler(timeout="50ms")
    def take_down(job: Context) -> None:
        tries.append(job.job.attempt)
        if len(tries) == 1:
            wait_until(lambda: job.cancelled)
            job.check_cancelled()

    @app.handler()
    def build(job: Context) -> None:
        job.undo(take_down)
        raise PermanentError("it fell")

    job = app.enqueue(build)
    start()
    wait_until(lambda: app.ledger.get(job.id).note == "compensated")
    assert tries == [1, 2]
    [undo] = app.ledger.list(kind="holdfast.undo")
    assert undo.last_error["type"] == "TimeoutError"


def test_the_kind_of_undo_jobs_is_reserved(still: App) -> None:
    with pytest.raises(ValidationError, match="reserved for the ledger"):
        still.handler("holdfast.undo")(lambda: None)


# Steps that fail


def test_a_step_that_raises_once_is_run_again_and_earlier_ones_are_not(site: Site) -> None:
    tries: list[int] = []

    @site.app.handler()
    def shaky(job: Context) -> None:
        tries.append(job.job.attempt)
        if len(tries) == 1:
            raise OSError("slipped")

    job = site.put_up_around("shaky")
    assert [run.status for run in drain(site.app, advance=True).runs] == ["failed", "queued", "succeeded"]
    assert (site.down, tries) == (["last", "first"], [1, 2])
    assert site.notes(job) == ["compensated"]


def _with_step(site: Site, kind: str, **args: Any) -> Job:
    """A failed job with one undo step."""
    job = site.put_up()
    [held] = site.app.ledger.claim("w", start=True)
    site.app.ledger.heartbeat(held.fence, undo={"kind": "take_down", "args": {"stone": "first"}})
    site.app.ledger.heartbeat(held.fence, undo={"kind": kind, "args": args})
    site.app.ledger.fail(held.fence, "no", retryable=False)
    return job


@pytest.mark.parametrize("known", [False, True])
def test_a_step_that_fails_permanently_is_noted(site: Site, known: bool) -> None:
    if known:

        @site.app.handler("stuck")
        def stuck() -> None:
            raise OSError("rusted in")

    job = _with_step(site, "stuck")
    assert drain(site.app, advance=True).counts == {"queued": 4, "dead_lettered": 1}
    assert (site.notes(job), site.down) == (["compensation_failed"], [])
    assert dead(site.undo_job)["reason_code"] == "compensation_failed"
    assert site.undo_job.last_error["type"] == ("OSError" if known else "TransientError")
    assert ("rusted in" if known else "no handler here for 'stuck'") in site.undo_job.last_error["message"]


@pytest.mark.parametrize("error", [PermanentError("never"), KeyError("picky")])
def test_a_permanent_error_is_not_retried(site: Site, error: Exception) -> None:
    @site.app.handler(fail_on=KeyError)
    def picky() -> None:
        raise error

    job = _with_step(site, "picky")
    ran = drain(site.app)
    assert (ran.counts, ran.errors) == ({"failed": 1}, (error,))
    assert site.notes(job) == ["compensation_failed"]


def test_a_job_with_args_that_no_longer_fit_is_dead_lettered(site: Site) -> None:
    job = _with_step(site, "take_down", stones="no such argument")
    assert drain(site.app).counts == {"dead_lettered": 1}
    assert dead(site.undo_job)["reason_code"] == "parse_error"
    assert site.notes(job) == ["compensation_failed"]


def test_a_replay_continues_where_the_undo_job_ended(site: Site) -> None:
    broken = [True]

    @site.app.handler()
    def stuck() -> None:
        if broken:
            raise PermanentError("rusted in")

    job = site.put_up_around("stuck")
    drain(site.app)
    again = site.app.ledger.replay(site.undo_job.id)
    drain(site.app)
    assert site.app.ledger.get(again.id).status == "failed"
    broken.clear()
    site.app.ledger.replay(again.id)
    drain(site.app)
    assert site.down == ["last", "first"]
    assert site.notes(job) == ["compensation_failed", "compensated"]


def test_an_undo_job_can_be_replayed_after_its_original_was_pruned(site: Site, clock: ManualClock) -> None:
    known: list[bool] = []

    @site.app.handler()
    def stuck() -> None:
        if not known:
            raise PermanentError("rusted in")

    job = _with_step(site, "stuck")
    drain(site.app)
    known.append(True)
    again = site.app.ledger.replay(site.undo_job.id)
    clock.advance(1)
    assert site.app.ledger.prune(jobs_before=clock.now(), failed_before=clock.now()) == {"jobs": 1, "failed": 1}
    assert drain(site.app).runs == ((again.id, "holdfast.undo", "succeeded"),)
    assert site.down == ["first"]
    assert job.id not in [left.id for left in site.app.ledger.list()]


def test_an_undo_job_may_be_cancelled_between_its_steps(site: Site) -> None:
    @site.app.handler()
    def meddle(job: Context) -> None:
        site.app.ledger.cancel(job.job.id)

    job = _with_step(site, "meddle")
    assert drain(site.app).counts == {"cancelled": 1}
    assert (site.down, site.notes(job)) == ([], ["compensation_failed"])
    assert site.undo_job.checkpoint == {"done": 1}


# Checkpoints of a step


@pytest.mark.parametrize("of", ["def", "async def"])
def test_a_checkpoint_of_a_step_does_not_change_the_count(site: Site, of: str) -> None:
    restored: list[Any] = []

    def look(job: Context) -> None:
        restored.append(job.restored)
        if job.restored is None:
            raise TransientError("half way")

    @site.app.handler("def")
    def step(job: Context) -> None:
        if job.restored is None:
            job.checkpoint({"page": 7})
        look(job)

    @site.app.handler("async def")
    async def async_step(job: AsyncContext) -> None:
        if job.restored is None:
            await job.checkpoint({"page": 7})
        look(job)

    site.put_up_around(of)
    drain(site.app, advance=True)
    assert restored == [None, {"page": 7}]
    assert site.down == ["last", "first"]


# A crash


PROGRAM = """
import os, sys
from holdfast import App, Context, PermanentError
from holdfast.testing import ManualClock, drain

url, place, fatal = sys.argv[1:]
app = App(url, clock=ManualClock())

@app.handler()
def take_down(job: Context, n: int) -> None:
    with open(place, "a") as file:
        file.write(f"{n}\\n")
    if n == int(fatal):
        os._exit(9)

@app.handler()
def build(job: Context) -> None:
    for n in range(4):
        job.undo(take_down, n=n)
    raise PermanentError("it fell")

app.enqueue(build)
drain(app)
"""


def test_steps_recorded_before_a_crash_are_not_run_again(still: App, store_url: str, clock: ManualClock, tmp_path: Any) -> None:
    place = tmp_path / "taken"
    program = [sys.executable, "-c", PROGRAM, store_url, str(place), "1"]
    done = subprocess.run(program, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("Traceback")) == (9, 0)
    assert place.read_text().split() == ["3", "2", "1"]

    taken: list[int] = []

    @still.handler()
    def take_down(job: Context, n: int) -> None:
        taken.append(n)

    assert drain(still).runs == ()
    clock.advance(61)
    assert drain(still, advance=True).counts == {"succeeded": 1}
    assert taken == [1, 0]
    assert still.ledger.get(1).note == "compensated"
