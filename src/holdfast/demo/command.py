"""`holdfast demo`: workers run jobs, one worker is killed in mid-job, and the history shows that no job was lost.

The workers are `holdfast worker run` with an app of two dozen lines. The parent uses only the public verbs of the ledger.
"""

import contextlib
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

import holdfast
from holdfast import EventType, Fence, HoldfastError, Ledger
from holdfast.cli.command import CommandResult, as_json_option, print_result, remember_ledger
from holdfast.cli.config import without_password
from holdfast.cli.output import CommandError, Page, usage_error
from holdfast.cli.serve import import_server
from holdfast.demo.hour import LiveJobs, write_hour
from holdfast.demo.verification import DemoReport, actor_name, verify_demo
from holdfast.demo.workers import DemoError, DemoWorkers
from holdfast.services import sweeper

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx", "mole", "newt", "owl", "pug")
STALL_SECONDS, BACKOFF_SECONDS = 1.0, 0.1
SHORT_STALL_POLICY: dict[str, Any] = {"heartbeat_interval": STALL_SECONDS, "missed_beats_max": 1, "backoff_base": BACKOFF_SECONDS}
"""Policy of the job whose worker is killed: the shortest time to a stall that a policy allows."""
RECOVERY_SECONDS_MAX = STALL_SECONDS + sweeper.DUTY_SECONDS + sweeper.EVERY_SECONDS + 1.5 * BACKOFF_SECONDS + 0.5
"""The time to a stall, the sweeper's duty if the killed worker had it, one sweep, the backoff, and half a second to act."""
LIVE = ("queued", "claimed", "running", "stalled")
POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 60.0


@click.command()
@click.option("--db", metavar="URL", callback=remember_ledger, help="The ledger to use. By default a new SQLite file.")
@click.option("--jobs", default=200, show_default=True, type=click.IntRange(1, 5_000), help="How many jobs to run.")
@click.option("--workers", default=3, show_default=True, type=click.IntRange(2, 16), help="How many worker processes to start.")
@click.option("--serve", is_flag=True, help="Then show a dashboard while the workers go on, until SIGINT.")
@as_json_option
def demo(*, db: str | None, jobs: int, workers: int, serve: bool, as_json: bool) -> None:
    """Run jobs, kill a worker in mid-job, and check the history.

    Exit with 0 only if every job has succeeded and every history is valid.

    With --serve and without --db, the new ledger begins with an hour of made-up jobs, and more come while it is served.

    \b
    Example:
      holdfast demo --jobs 500 --workers 4
      holdfast demo --serve
    """
    if serve and as_json:
        raise usage_error("--serve is for people, and --json for programs")
    server = import_server() if serve else None
    made_up = serve and db is None
    url = db or f"sqlite:///{tempfile.mkdtemp(prefix='holdfast-demo-')}/demo.db"
    try:
        with holdfast.open(url, actor="demo") as ledger:
            run = Demo(ledger, Page(quiet=as_json), url, NAMES[:workers], made_up=made_up)
            if server is None:
                report = run(jobs)
            else:
                plan = server.plan_of(ledger, server.ServerOptions(port=0, link=True))
                report = run(jobs, then=lambda: server.serve_ledger(ledger, plan, announce=click.echo))
    except DemoError as error:
        raise CommandError("demo_failed", str(error)) from None
    if as_json:
        print_result(CommandResult({"ledger": without_password(url), **report._asdict()}, lambda page: None), as_json)


def program_name() -> str:
    """Return the words that start this program again from this folder."""
    started = Path(sys.argv[0])
    if started.name != "holdfast":
        return f"{_from_here(Path(sys.executable))} -m holdfast"
    found = shutil.which("holdfast")
    return "holdfast" if found and Path(found).samefile(started) else _from_here(started)


def _from_here(path: Path) -> str:
    full = path if path.is_absolute() else Path.cwd() / path
    return str(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full)


class Demo:
    """One demo: each call runs some jobs, kills a worker, and verifies what happened."""

    def __init__(self, ledger: Ledger, page: Page, url: str, names: Sequence[str], *, made_up: bool = False) -> None:
        self._ledger = ledger
        self._page = page
        self._url = url
        self._names = names
        self._made_up = made_up
        self._queue = f"demo-{secrets.token_hex(3)}"
        self._began = time.monotonic()

    def __call__(self, count: int, then: Callable[[], None] | None = None) -> DemoReport:
        """Run the demo. Then call this function, if there is one, while the workers go on."""
        self._page.line(f"Holdfast {holdfast.__version__}: a demo of about five seconds", bold=True)
        self._page.line(f"  ledger {without_password(self._url)}, queue {self._queue}")
        self._page.heading("What happens")
        environment = {"HOLDFAST_URL": self._url, "HOLDFAST_DEMO_QUEUE": self._queue}
        if self._made_up:
            self._print(f"an hour of made-up history is written, {write_hour(self._url, self._names)} jobs")
            environment["HOLDFAST_DEMO_HOUR"] = "1"
        with DemoWorkers(environment, self._names) as processes:
            self._wait_for_workers(processes)
            texts, fatal = self._enqueue(count)
            lost = self._kill_one(processes)
            self._watch(processes, fatal, min(texts))
            if then is None:
                processes.terminate_all(TIMEOUT_SECONDS)
            else:
                processes.start(lost.worker)
            self._try_stale_write(lost)
            report = verify_demo(self._ledger, texts, lost, RECOVERY_SECONDS_MAX)
            self._show_report(report, lost)
            self._show_events_of(fatal)
            self._show_next(fatal)
            if then is not None:
                with LiveJobs(self._ledger) if self._made_up else contextlib.nullcontext():
                    then()
                processes.terminate_all(TIMEOUT_SECONDS)
        return report

    def _print(self, text: str, **style: object) -> None:
        self._page.line(f"  {time.monotonic() - self._began:6.2f} s  {text}", **style)

    def _wait_for_workers(self, processes: DemoWorkers) -> None:
        """Wait until all workers have signed in. Workers of an earlier demo have another queue."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len([w for w in self._ledger.workers() if self._queue in w.details.get("queues", ())]) < len(self._names):
            if time.monotonic() > deadline:
                raise DemoError(f"the workers have not signed in within {TIMEOUT_SECONDS:g} s")
            processes.listen(POLL_SECONDS)
        pids = ", ".join(f"{name} (pid {processes.pid(name)})" for name in self._names)
        self._print(f"{len(self._names)} workers have signed in: {pids}")

    def _enqueue(self, count: int) -> tuple[dict[int, str], int]:
        """Enqueue the jobs. Return the text of each job, and the id of the fatal job."""
        texts = [f"page {number} of {count}" for number in range(1, count + 1)]
        middle = count // 2
        items: list[dict[str, Any]] = [
            {"kind": "demo.digest", "queue": self._queue, "args": {"text": text, "fatal": n == middle}}
            for n, text in enumerate(texts)
        ]
        items[middle]["policy"] = SHORT_STALL_POLICY
        enqueued = self._ledger.enqueue_many(items)
        self._print(f"{count} jobs enqueued in one transaction; each hashes a text")
        return {job.id: text for job, text in zip(enqueued, texts, strict=True)}, enqueued[middle].id

    def _kill_one(self, processes: DemoWorkers) -> Fence:
        """Kill the worker that has started the fatal job. Return its fence."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (started := processes.listen(POLL_SECONDS)) is None:
            if time.monotonic() > deadline:
                raise DemoError(f"no worker has started the fatal job within {TIMEOUT_SECONDS:g} s")
        pid = processes.pid(started.worker)
        processes.kill(started.worker)
        self._print(f"{started.worker} has started job {started.job}, attempt {started.attempt}")
        self._print(f"SIGKILL to {started.worker}, pid {pid}, in mid-job", fg="red")
        return started.fence

    def _watch(self, processes: DemoWorkers, fatal: int, first: int) -> None:
        """Report events of the fatal job until no job of the queue is live. The remaining workers do the work alone."""
        seen = self._ledger.events(fatal, types=[EventType.STARTED])[-1].pos
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._ledger.list(queue=self._queue, status=LIVE, after=first - 1, limit=1):
            if time.monotonic() > deadline:
                raise DemoError(f"jobs are left after {TIMEOUT_SECONDS:g} s: {self._ledger.counts()[self._queue]}")
            seen = self._report_new_events(fatal, seen)
            processes.listen(POLL_SECONDS)
        self._report_new_events(fatal, seen)

    def _report_new_events(self, fatal: int, seen: int) -> int:
        for event in self._ledger.events(fatal, after=seen):
            seen = event.pos
            match event.type:
                case EventType.STALLED:
                    self._print(f"a worker's sweeper marks job {fatal} as stalled: {event.reason}")
                case EventType.REQUEUED:
                    self._print(f"job {fatal} is queued again")
                case EventType.CLAIMED:
                    self._print(f"{actor_name(event)} claims job {fatal}, attempt {event.attempt}, with a new fence")
                case EventType.SUCCEEDED:
                    self._print(f"{actor_name(event)} finishes job {fatal}", fg="green")
        return seen

    def _try_stale_write(self, lost: Fence) -> None:
        """Complete the job under the killed worker's fence, as that worker would have done if it had only been slow."""
        try:
            self._ledger.complete(lost, {"sha256": "0" * 64, "by": lost.worker})
        except HoldfastError as error:
            if error.code != "fence_lost":
                raise
            self._print(f"a late write under {lost.worker}'s old fence is refused: {error.code}", fg="green")
            self._print(f"  {error.message}")
        else:
            raise DemoError(f"the late write of {lost.worker} was accepted")

    def _show_report(self, report: DemoReport, lost: Fence) -> None:
        within = "within" if report.recovery_s <= report.recovery_s_max else "beyond, on a busy machine,"
        self._page.heading("What was verified")
        self._page.line(f"  {report.jobs} jobs, all succeeded, each with the right result")
        self._page.line(f"  {report.events} events: no history has gaps or forbidden steps, and each one gives its job's row")
        self._page.line(f"  recorded by {', '.join(f'{name} {count}' for name, count in report.recorded_by.items())}")
        self._page.line(
            f"  time to recovery {report.recovery_s:.2f} s, from {lost.worker}'s last event to the next claim; "
            f"the job was stalled after {report.silence_s:.2f} s"
        )
        self._page.line(
            f"  {within} the {report.recovery_s_max:.2f} s that its policy ({STALL_SECONDS:g} s of silence) and the sweep allow"
        )

    def _show_events_of(self, fatal: int) -> None:
        events = self._ledger.events(fatal)
        enqueued_at = events[0].received_at
        rows = [
            (
                event.rev,
                event.type.value,
                actor_name(event),
                event.attempt,
                f"+{(event.received_at - enqueued_at).total_seconds():.3f} s",
            )
            for event in events
        ]
        self._page.heading(f"The history of job {fatal}")
        self._page.table(("rev", "event", "by", "attempt", "when"), rows)

    def _show_next(self, fatal: int) -> None:
        program, shown = program_name(), without_password(self._url)
        self._page.heading("What to try next, in this folder")
        self._page.line(f"  export HOLDFAST_URL='{shown}'" + (" # with its password" if shown != self._url else ""))
        for command, what in (
            (f"explain {fatal}", "why the job has its status"),
            (f"job events {fatal}", "what happened to it"),
            ("worker list", "the workers"),
            ("serve", "a dashboard, with a link that signs you in"),
        ):
            self._page.line(f"  {program} {command:<16}  # {what}")
