"""`holdfast demo`: real workers drain real jobs, one of them is killed in mid-job, and the record shows that nothing was lost.

The workers are `holdfast worker run` with an app of two dozen lines; the parent uses nothing but the public verbs of the ledger.
"""

import secrets
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import click

import holdfast
from holdfast import EventType, Fence, HoldfastError, Ledger
from holdfast.cli.command import CommandResult, as_json_option, print_result, remember_ledger
from holdfast.cli.config import without_password
from holdfast.cli.output import CommandError, Page
from holdfast.demo.verification import DemoError, DemoReport, actor_name, verify_demo
from holdfast.demo.workers import DemoWorkerError, DemoWorkers
from holdfast.services import sweeper

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx", "mole", "newt", "owl", "pug")
STALL_SECONDS, BACKOFF_SECONDS = 1.0, 0.1
SHORT_STALL_POLICY: dict[str, Any] = {"heartbeat_interval": STALL_SECONDS, "missed_beats_max": 1, "backoff_base": BACKOFF_SECONDS}
"""The job that is to be lost has the shortest silence that a policy allows."""
RECOVERY_SECONDS_MAX = STALL_SECONDS + sweeper.DUTY_SECONDS + sweeper.SweepService.every_s + 1.5 * BACKOFF_SECONDS + 0.5
"""The silence, the end of the duty should the killed worker have been the sweeper, a tick, the backoff, and time to act."""
LIVE = ("queued", "claimed", "running", "stalled")
POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 60.0


@click.command()
@click.option("--db", metavar="URL", callback=remember_ledger, help="The ledger to use. By default a new SQLite file.")
@click.option("--jobs", default=200, show_default=True, type=click.IntRange(1, 5_000), help="How many jobs to run.")
@click.option("--workers", default=3, show_default=True, type=click.IntRange(2, 16), help="How many worker processes to start.")
@as_json_option
def demo(*, db: str | None, jobs: int, workers: int, as_json: bool) -> None:
    """Run jobs, kill a worker in mid-job, and check the history.

    Exits with 0 only if every job finished and every history is in order.

    \b
    Example:
      holdfast demo --jobs 500 --workers 4
    """
    url = db or f"sqlite:///{tempfile.mkdtemp(prefix='holdfast-demo-')}/demo.db"
    try:
        with holdfast.open(url, actor="demo") as ledger:
            facts = Demo(ledger, Page(quiet=as_json), url, NAMES[:workers]).play(jobs)
    except (DemoError, DemoWorkerError) as error:
        raise CommandError("demo_failed", str(error)) from None
    if as_json:
        print_result(CommandResult({"ledger": without_password(url), **facts._asdict()}, lambda page: None), as_json)


class Demo:
    def __init__(self, ledger: Ledger, page: Page, url: str, names: Sequence[str]) -> None:
        self._ledger = ledger
        self._page = page
        self._url = url
        self._names = names
        self._queue = f"demo-{secrets.token_hex(3)}"
        self._began = time.monotonic()

    def play(self, count: int) -> DemoReport:
        self._page.line(f"Holdfast {holdfast.__version__}", bold=True)
        self._page.line(f"  ledger {without_password(self._url)}, queue {self._queue}")
        self._page.heading("What happens")
        with DemoWorkers(self._url, self._queue, self._names) as crew:
            self._wait_for_workers(crew)
            texts, fatal = self._enqueue(count)
            lost = self._kill_one(crew)
            self._watch(crew, fatal, min(texts))
            crew.terminate_all(TIMEOUT_SECONDS)
        self._try_stale_write(lost)
        facts = verify_demo(self._ledger, texts, lost, RECOVERY_SECONDS_MAX)
        self._show_facts(facts, lost)
        self._show_events_of(fatal)
        self._show_next()
        return facts

    def _tell(self, text: str, **style: object) -> None:
        self._page.line(f"  {time.monotonic() - self._began:6.2f} s  {text}", **style)

    # The acts

    def _wait_for_workers(self, crew: DemoWorkers) -> None:
        """Workers sign in; those of an earlier demo had another queue."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len([w for w in self._ledger.workers() if w.details.get("queues") == [self._queue]]) < len(self._names):
            if time.monotonic() > deadline:
                raise DemoError(f"the workers have not signed in within {TIMEOUT_SECONDS:g} s")
            crew.listen(POLL_SECONDS)
        pids = ", ".join(f"{name} (pid {crew.pid(name)})" for name in self._names)
        self._tell(f"{len(self._names)} workers have signed in: {pids}")

    def _enqueue(self, count: int) -> tuple[dict[int, str], int]:
        """The text of each job, and the job that a worker will die on."""
        texts = [f"page {number} of {count}" for number in range(1, count + 1)]
        middle = count // 2
        items: list[dict[str, Any]] = [
            {"kind": "demo.digest", "queue": self._queue, "args": {"text": text, "fatal": n == middle}}
            for n, text in enumerate(texts)
        ]
        items[middle]["policy"] = SHORT_STALL_POLICY
        made = self._ledger.enqueue_many(items)
        self._tell(f"{count} jobs enqueued in one transaction; each is to hash a text")
        return {job.id: text for job, text in zip(made, texts, strict=True)}, made[middle].id

    def _kill_one(self, crew: DemoWorkers) -> Fence:
        """The fence that the killed worker had."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (said := crew.listen(POLL_SECONDS)) is None:
            if time.monotonic() > deadline:
                raise DemoError(f"no worker has begun the fatal job within {TIMEOUT_SECONDS:g} s")
        pid = crew.pid(said.worker)
        crew.kill(said.worker)
        self._tell(f"{said.worker} has started job {said.job}, attempt {said.attempt}")
        self._tell(f"SIGKILL to {said.worker}, pid {pid}, in the middle of it", fg="red")
        return said.fence

    def _watch(self, crew: DemoWorkers, fatal: int, first: int) -> None:
        """Until no job of the queue is live: the workers that are left do it all by themselves."""
        seen = self._ledger.events(fatal, types=[EventType.STARTED])[-1].pos
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._ledger.list(queue=self._queue, status=LIVE, after=first - 1, limit=1):
            if time.monotonic() > deadline:
                raise DemoError(f"jobs are left after {TIMEOUT_SECONDS:g} s: {self._ledger.counts()[self._queue]}")
            seen = self._report_new_events(fatal, seen)
            crew.listen(POLL_SECONDS)
        self._report_new_events(fatal, seen)

    def _report_new_events(self, fatal: int, seen: int) -> int:
        for event in self._ledger.events(fatal, after=seen):
            seen = event.pos
            match event.type:
                case EventType.STALLED:
                    self._tell(f"a worker's sweep finds job {fatal} stalled: {event.reason}")
                case EventType.REQUEUED:
                    self._tell(f"job {fatal} is queued again")
                case EventType.CLAIMED:
                    self._tell(f"{actor_name(event)} claims job {fatal}, attempt {event.attempt}, with a new fence")
                case EventType.SUCCEEDED:
                    self._tell(f"{actor_name(event)} finishes job {fatal}", fg="green")
        return seen

    def _try_stale_write(self, lost: Fence) -> None:
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

    def _show_facts(self, facts: DemoReport, lost: Fence) -> None:
        within = "within" if facts.recovery_s <= facts.recovery_s_max else "beyond, on a busy machine,"
        self._page.heading("What was verified")
        self._page.line(f"  {facts.jobs} jobs, all succeeded, each with the right result")
        self._page.line(
            f"  {facts.events} events: every history is free of gaps and forbidden steps, and adds up to its job's row"
        )
        self._page.line(f"  recorded by {', '.join(f'{name} {count}' for name, count in facts.recorded_by.items())}")
        self._page.line(
            f"  time to recovery {facts.recovery_s:.2f} s, from {lost.worker}'s last sign of life to the next claim; "
            f"{facts.silence_s:.2f} s of it silence"
        )
        self._page.line(
            f"  {within} the {facts.recovery_s_max:.2f} s that its policy ({STALL_SECONDS:g} s of silence) and the sweep allow"
        )

    def _show_events_of(self, fatal: int) -> None:
        events = self._ledger.events(fatal)
        born = events[0].received_at
        rows = [
            (
                event.rev,
                event.type.value,
                actor_name(event),
                event.attempt,
                f"+{(event.received_at - born).total_seconds():.3f} s",
            )
            for event in events
        ]
        self._page.heading(f"The life of job {fatal}")
        self._page.table(("rev", "event", "by", "attempt", "when"), rows)

    def _show_next(self) -> None:
        shown = without_password(self._url)
        self._page.heading("Where to look next, in the repository")
        self._page.line("  README.md                     what is promised and what is not")
        self._page.line("  docs/guides/quickstart.md     the same in your own code")
        self._page.line("  docs/guides/workers.md        handlers, and the workers that run them")
        self._page.line("  docs/reference/lifecycle.md   every step a job can take")
        self._page.line("  docs/reference/cli.md         every command, such as this one:")
        self._page.line(f"  holdfast worker list --db '{shown}'   on this ledger, kept as it is")
