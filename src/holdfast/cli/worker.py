"""`holdfast worker`: run workers and list them."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import (
    CommandResult,
    NounGroup,
    as_json_option,
    exit_code_of,
    key_option,
    load_keys,
    print_result,
    remember_ledger,
    with_existing_ledger,
)
from holdfast.cli.config import load_apps
from holdfast.cli.output import CommandError, Page, usage_error
from holdfast.cli.values import duration, duration_or_never, queues
from holdfast.core.text import format_age
from holdfast.errors import HoldfastError, LimitExceeded, ValidationError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger, WorkerRecord


SILENT = timedelta(seconds=45)
"""A worker reports every 15 s. One that has not for this long is shown as silent."""


def replaced_workers(workers: "Iterable[WorkerRecord]") -> set[tuple[str, str]]:
    """Return name and incarnation of each worker that was last seen before a newer worker of its name started."""
    found = list(workers)
    newest: dict[str, datetime] = {}
    for one in found:
        newest[one.name] = max(newest.get(one.name, one.started_at), one.started_at)
    return {(one.name, one.incarnation) for one in found if one.seen_at < newest[one.name]}


def last_seen_text(worker: "WorkerRecord", now: datetime, gone: set[tuple[str, str]]) -> str:
    """Return `3s ago`, `silent for 7m` or `replaced by a newer one, silent for 7m`. `gone` is from `replaced_workers`."""
    unseen = now - worker.seen_at
    words = f"silent for {format_age(unseen)}" if unseen > SILENT else f"{format_age(unseen)} ago"
    return f"replaced by a newer one, {words}" if (worker.name, worker.incarnation) in gone else words


log = logging.getLogger("holdfast.cli")

LEVELS = ("debug", "info", "warning", "error", "critical")
WORKERS_MAX = 1_000
PORT_MAX = 65_535
GRACE_SECONDS = 2.0
"""How long threads that handlers have started may run after the worker has stopped."""


@click.group(cls=NounGroup)
def worker() -> None:
    """Run workers, and list them.

    \b
    Try:
      holdfast worker list
    """


@worker.command()
@click.argument("apps", nargs=-1, required=True, metavar="MODULE:APP…")
@click.option("--db", metavar="URL", callback=remember_ledger, help="Another ledger than the one the apps name.")
@key_option
@click.option("--name", help="The worker's name. [default: that of its worker key, else host and process id]")
@click.option("--queues", type=queues, help="Queues: a,b in strict order, or a=3,b=1 by weight. [default: those of the handlers]")
@click.option("--label", "labels", multiple=True, help="A label that the worker has, for jobs that require it. May be repeated.")
@click.option("--threads", type=click.IntRange(1, 10_000), help="The most handlers that run in threads. [default: 10]")
@click.option("--tasks", type=click.IntRange(1, 10_000), help="The most async handlers that run. [default: 100]")
@click.option(
    "--processes", type=click.IntRange(1, 10_000), help="The most handlers that run in processes. [default: one per core]"
)
@click.option("--workers", type=click.IntRange(1, WORKERS_MAX), help="Run this many worker processes, and keep them running.")
@click.option("--shutdown-timeout", type=duration, help="How long to wait at the end for running jobs. [default: 30s]")
@click.option("--keep-jobs", type=duration_or_never, help="Delete finished jobs after this time. [default: never]")
@click.option(
    "--keep-failed", type=duration_or_never, help="Delete failed jobs and dead letters after this time. [default: never]"
)
@click.option("--keep-beats", type=duration_or_never, help="Delete the contents of heartbeats after this time. [default: 30d]")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, PORT_MAX),
    help="Serve /metrics and /healthz on this port; worker n of --workers on port + n - 1.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address to listen on for --metrics-port.")
@click.option(
    "--log",
    "form",
    type=click.Choice(["text", "json"]),
    help="The form of log lines. [default: text on a terminal, else json]",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="The lowest level to log. At info, each start and success has a line.",
)
@as_json_option
def run(
    *,
    apps: tuple[str, ...],
    db: str | None,
    keys: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    form: str | None,
    log_level: str,
    workers: int | None,
    as_json: bool,
    **worker_options: Any,
) -> None:
    """Run the jobs of one or more apps until a signal to stop.

    After SIGTERM, SIGINT or SIGHUP running jobs may finish. A second signal releases them at once. The exit code is 0 after an
    orderly stop, and 1 if the worker gave up because too many of its handlers did not stop. With --workers, that many processes
    run. One that ends is restarted, up to 10 times in 10 minutes, or without a limit while the ledger is out of reach. Signals
    are passed on to all of them.

    \b
    Example:
      holdfast worker run shop:app --queues crawl=3,mail=1 --threads 20
    """
    from holdfast.telemetry import logs

    form = form or ("text" if sys.stderr.isatty() else "json")
    logs.configure(json=form == "json", level=log_level.upper())
    options = {"apps": apps, "db": db, "keys": keys, "metrics_port": metrics_port, "metrics_host": metrics_host, **worker_options}
    if workers is not None:
        _run_several(workers, options, as_json)
        return
    name = _run_one(**options)
    if as_json:
        print_result(CommandResult({"worker": name}, lambda page: None), as_json)


def _run_several(count: int, options: dict[str, Any], as_json: bool) -> None:
    from holdfast.supervise.worker_processes import UNREACHABLE, WorkerProcesses

    port = options["metrics_port"]
    if port and port + count - 1 > PORT_MAX:
        raise usage_error(
            f"--workers {count} and --metrics-port {port} need ports up to {port + count - 1}; the last is {PORT_MAX}"
        )

    def work(number: int) -> int:
        """Run one worker in its own process. Log why it fails, and return the exit code."""
        named = options["name"]
        try:
            own = {"name": None if named is None else f"{named}-{number}", "metrics_port": port + number - 1 if port else port}
            _run_one(**{**options, **own})
        except (CommandError, HoldfastError) as error:
            log.error(error.message, extra={"worker_number": number, "error_code": error.code, "action": error.action})  # noqa: TRY400
            return exit_code_of(error)
        return 0

    ended = WorkerProcesses(count, work).run()
    if ended.exit_code == UNREACHABLE:
        raise CommandError(
            "unavailable", "the workers could not reach the ledger", action="The log says why.", exit_code=UNREACHABLE
        )
    if ended.exit_code:
        words = f"not all of the {count} workers have stopped in order, after {ended.restarts} restarts"
        raise CommandError("gave_up", words, action="The log says why.", exit_code=ended.exit_code)
    if as_json:
        print_result(CommandResult({"workers": count, "restarts": ended.restarts}, lambda page: None), as_json)


def _run_one(
    *,
    apps: tuple[str, ...],
    db: str | None,
    keys: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    **options: Any,
) -> str:
    """Run one worker until a signal stops it. Return its name."""
    from holdfast.worker import worker_of

    found = load_apps(apps, db, load_keys(keys))
    try:
        made = worker_of(found, **{name: value for name, value in options.items() if value is not None})
    except (LimitExceeded, ValidationError) as error:
        # A usage error, because a restart cannot repair wrong options or a wrong app.
        raise usage_error(error.message) from None
    with made as worker:
        if metrics_port is not None:
            from holdfast.watch.prometheus import serve

            endpoint = serve(worker.runtime.ledger, metrics_port, metrics_host)
            log.info("serving metrics", extra={"url": f"{endpoint.url}/metrics", "worker": worker.name})
        orderly = worker.run()
    for app in found:
        app.close()
    _exit_despite_threads(0 if orderly else 1)
    if not orderly:
        raise CommandError(
            "gave_up", f"{worker.name} gave up: too many of its handlers did not stop", action="Start another one."
        )
    return worker.name


def _exit_despite_threads(code: int) -> None:
    """End the process even if threads that handlers have started still run. Python would wait for them forever."""
    main = threading.main_thread()
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main]
    if not left:
        return

    def end() -> None:
        main.join()
        time.sleep(GRACE_SECONDS)
        log.warning("ending while threads that handlers have started still run", extra={"threads": left[:20]})
        os._exit(code)

    threading.Thread(target=end, name="holdfast-end", daemon=True).start()


@worker.command("list")
@click.option("--seen-within", type=duration, help="Only workers seen within this time.")
@with_existing_ledger
def list_(ledger: "Ledger", *, seen_within: timedelta | None) -> CommandResult:
    """List workers that are signed in.

    \b
    Try:
      holdfast worker list --seen-within 1m
    """
    now = ledger.now()
    found = ledger.workers(seen_within=seen_within)
    gone = replaced_workers(found if seen_within is None else ledger.workers())

    def show(page: Page) -> None:
        if found:
            show_workers(page, found, now, gone)
        else:
            page.line("No workers.")

    return CommandResult({"workers": found, "now": now}, show)


def show_workers(page: Page, found: "Sequence[WorkerRecord]", now: datetime, gone: set[tuple[str, str]]) -> None:
    """Print a table of workers. `gone` is from `replaced_workers`."""
    heads: tuple[str, ...] = ("worker", "last seen", "holding", "queues", "up", "host, pid")
    if any(record.details.get("labels") for record in found):
        heads = (*heads, "labels")
    rows = [
        (
            record.name,
            last_seen_text(record, now, gone),
            record.holding,
            _join_names(record.details.get("queues")),
            format_age(now - record.started_at),
            f"{record.details.get('host', '–')}, {record.details.get('pid', '–')}",
            _join_names(record.details.get("labels") or None),
        )[: len(heads)]
        for record in found
    ]
    page.table(heads, rows)


def _join_names(names: object) -> str:
    """Join the names. A worker reports its details itself, so they may have any type."""
    return ", ".join(map(str, names)) if isinstance(names, list) else "–"
