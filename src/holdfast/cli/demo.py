"""The demo: real workers drain real jobs, one of them is killed in mid-job, and the record shows that nothing was lost.

It uses nothing but the public verbs of the ledger.
"""

import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import holdfast
from holdfast import Event, EventType, Fence, HoldfastError, Job, Ledger, Status
from holdfast.cli.demo_crew import Crew, CrewError
from holdfast.cli.demo_worker import digest
from holdfast.cli.page import Page

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx", "mole", "newt", "owl", "pug")
PLAIN, FATAL = "demo.digest", "demo.fatal"
TIGHT: dict[str, Any] = {"heartbeat_interval": "1s", "missed_beats_max": 1, "backoff_base": "100ms"}
"""The job that is to be lost has the shortest silence that a policy allows."""
LIVE = ("queued", "claimed", "running", "stalled")
TICK_SECONDS = 0.1
PATIENCE_SECONDS = 60.0


class DemoError(Exception):
    """Something is not as it was promised."""


def run(db: str | None, *, jobs: int, workers: int) -> int:
    """The exit code: 0 only if everything was verified."""
    page = Page()
    url = db or f"sqlite:///{tempfile.mkdtemp(prefix='holdfast-demo-')}/demo.db"
    try:
        with holdfast.open(url, actor="demo") as ledger:
            Demo(ledger, page, url, NAMES[:workers]).play(jobs)
    except (DemoError, CrewError) as error:
        return page.fail(str(error))
    except HoldfastError as error:
        return page.fail(f"{error.code}: {error.message}")
    return 0


class Demo:
    def __init__(self, ledger: Ledger, page: Page, url: str, names: Sequence[str]) -> None:
        self._ledger = ledger
        self._page = page
        self._url = url
        self._names = names
        self._queue = f"demo-{secrets.token_hex(3)}"
        self._began = time.monotonic()

    def play(self, count: int) -> None:
        self._page.line(f"Holdfast {holdfast.__version__}", bold=True)
        self._page.line(f"  ledger {_without_password(self._url)}, queue {self._queue}")
        self._page.heading("What happens")
        texts, fatal = self._enqueue(count)
        with Crew(self._url, self._queue, self._names) as crew:
            crew.wait_for("ready", PATIENCE_SECONDS, everyone=True)
            pids = ", ".join(f"{name} (pid {crew.pid(name)})" for name in self._names)
            self._tell(f"{len(self._names)} workers are at it: {pids}")
            lost = self._kill_one(crew, fatal)
            self._sweep_until_done(crew, fatal, min(texts))
            done = crew.send_home(PATIENCE_SECONDS)
        self._play_the_ghost(lost)
        self._verify(texts, fatal, lost, done)
        self._show_life(fatal)
        self._show_next()

    def _tell(self, text: str, **style: object) -> None:
        self._page.line(f"  {time.monotonic() - self._began:6.2f} s  {text}", **style)

    # The acts

    def _enqueue(self, count: int) -> tuple[dict[int, str], int]:
        """The text of each job, and the job that a worker will die on."""
        self._ledger.set_policy(FATAL, **TIGHT)
        texts = [f"page {number} of {count}" for number in range(1, count + 1)]
        middle = count // 2
        items = [
            {"kind": FATAL if n == middle else PLAIN, "queue": self._queue, "args": {"text": text, "fatal": n == middle}}
            for n, text in enumerate(texts)
        ]
        made = self._ledger.enqueue_many(items)
        self._tell(f"{count} jobs enqueued in one transaction; each is to hash a text")
        return {job.id: text for job, text in zip(made, texts, strict=True)}, made[middle].id

    def _kill_one(self, crew: Crew, fatal: int) -> Fence:
        """The fence that the killed worker had."""
        [(name, said)] = crew.wait_for("started", PATIENCE_SECONDS).items()
        self._tell(f"{name} has started job {fatal}, attempt {said['attempt']}")
        pid = crew.pid(name)
        crew.kill(name)
        self._tell(f"SIGKILL to {name}, pid {pid}, in the middle of it", fg="red")
        return Fence(fatal, said["attempt"], said["token"], name)

    def _sweep_until_done(self, crew: Crew, fatal: int, first: int) -> None:
        """Be the sweeper until no job of the queue is live. The wait between ticks also hears of a worker that fails."""
        seen = self._ledger.events(fatal)[-1].pos
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._ledger.list(queue=self._queue, status=LIVE, after=first - 1, limit=1):
            if time.monotonic() > deadline:
                raise DemoError(f"jobs are left after {PATIENCE_SECONDS:g} s: {self._ledger.counts()[self._queue]}")
            self._ledger.sweep()
            seen = self._tell_news(fatal, seen)
            crew.listen(TICK_SECONDS)
        self._tell_news(fatal, seen)

    def _tell_news(self, fatal: int, seen: int) -> int:
        for event in self._ledger.events(fatal, after=seen):
            seen = event.pos
            who = _who(event)
            match event.type:
                case EventType.STALLED:
                    self._tell(f"the sweep finds job {fatal} stalled: {event.reason}")
                case EventType.REQUEUED:
                    self._tell(f"job {fatal} is queued again")
                case EventType.CLAIMED:
                    self._tell(f"{who} claims job {fatal}, attempt {event.attempt}, with a new fence")
                case EventType.SUCCEEDED:
                    self._tell(f"{who} finishes job {fatal}", fg="green")
        return seen

    def _play_the_ghost(self, lost: Fence) -> None:
        """What if the dead worker was only slow? Its write comes late, under its old fence."""
        try:
            self._ledger.complete(lost, {"sha256": "0" * 64, "by": lost.worker})
        except HoldfastError as error:
            if error.code != "fence_lost":
                raise
            self._tell(f"a late write under {lost.worker}'s old fence is refused: {error.code}", fg="green")
            self._tell(f"  {error.message}")
        else:
            raise DemoError(f"the late write of {lost.worker} was accepted")

    # What is left behind

    def _verify(self, texts: dict[int, str], fatal: int, lost: Fence, done: dict[str, int]) -> None:
        for id_, text in texts.items():
            self._verify_job(self._ledger.get(id_), text, lost=id_ == fatal)
        if self._ledger.get(fatal).result["by"] == lost.worker:
            raise DemoError(f"job {fatal} has the result of the killed worker")
        by = Counter(job.result["by"] for job in map(self._ledger.get, texts))
        if any(done[name] != by[name] for name in done):
            raise DemoError(f"the workers say they did {done}, the ledger says {dict(by)}")
        events = sum(len(self._ledger.events(id_)) for id_ in texts)
        silent_since = self._times(fatal, EventType.STARTED)[0]
        sure = (self._times(fatal, EventType.STALLED)[0] - silent_since).total_seconds()
        recovered = (self._times(fatal, EventType.CLAIMED)[1] - silent_since).total_seconds()
        self._page.heading("What was verified")
        self._page.line(f"  {len(texts)} jobs, all succeeded, each with the right result")
        self._page.line(f"  {events} events: every history is free of gaps and forbidden steps, and adds up to its job's row")
        self._page.line(f"  recorded by {', '.join(f'{name} {count}' for name, count in sorted(by.items()))}")
        self._page.line(
            f"  time to recovery {recovered:.2f} s, from {lost.worker}'s last sign of life to the next claim; "
            f"{sure:.2f} s of it silence"
        )

    def _verify_job(self, job: Job, text: str, *, lost: bool) -> None:
        violations = self._ledger.check(job.id)
        if violations:
            raise DemoError(f"the history of job {job.id} is not in order: {violations[0]}")
        if job.status is not Status.SUCCEEDED or job.result["sha256"] != digest(text):
            raise DemoError(f"job {job.id} is {job.status.value} with the result {job.result}")
        if (job.attempt > 1) != lost:
            raise DemoError(f"job {job.id} took {job.attempt} attempts")

    def _times(self, job_id: int, kind: EventType) -> list[datetime]:
        return [event.received_at for event in self._ledger.events(job_id, types=[kind])]

    def _show_life(self, fatal: int) -> None:
        events = self._ledger.events(fatal)
        born = events[0].received_at
        rows = [
            (event.rev, event.type.value, _who(event), event.attempt, f"+{(event.received_at - born).total_seconds():.3f} s")
            for event in events
        ]
        self._page.heading(f"The life of job {fatal}")
        self._page.table(("rev", "event", "by", "attempt", "when"), rows)

    def _show_next(self) -> None:
        self._page.heading("Where to look next")
        self._page.line("  README.md                     what is promised and what is not")
        self._page.line("  docs/guides/quickstart.md     the same in your own code")
        self._page.line("  docs/reference/lifecycle.md   every step a job can take")
        self._page.line(f"  {_without_password(self._url)}   this ledger, kept as it is")


def _who(event: Event) -> str:
    """The actor without role and incarnation, which tell nothing here."""
    return event.actor.partition(":")[2].partition("#")[0]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":…@")))
