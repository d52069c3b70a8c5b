"""`holdfast job wait` and `holdfast job result`: wait for the end of jobs, and print what one of them returned."""

import contextlib
import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import CommandResult, with_existing_ledger
from holdfast.cli.output import Page
from holdfast.cli.values import JOB_ID, duration
from holdfast.core.model import TERMINAL
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger

SILENT_SECONDS = 2.0
"""After this time, `job wait` says what a job waits for."""


@click.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@click.option("--timeout", type=duration, default="10m", show_default=True, help="Stop after this time: 30s, 1h, at most 24h.")
@with_existing_ledger
def wait(ledger: "Ledger", *, ids: tuple[int, ...], timeout: timedelta) -> CommandResult:
    """Wait until jobs have ended, with or without success.

    Exit 0 when all of them have ended, 1 if one has not after --timeout. The error then says what that job waits for. So does a
    remark after two seconds.

    \b
    Example:
      holdfast job wait 12 13 --timeout 5m
    """
    from holdfast.ledger.verbs.reading import result_timeout
    from holdfast.shapes import job_view

    chosen, end = list(dict.fromkeys(ids)), time.monotonic() + timeout.total_seconds()
    seen = {id_: ledger.get(id_) for id_ in chosen}  # an id that does not exist is refused at once
    soon = min(end, time.monotonic() + SILENT_SECONDS)
    found = _wait_for(ledger, seen, soon)
    waiting = [job for job in found if job.status not in TERMINAL]
    if waiting and soon < end:
        if not click.get_current_context().params["as_json"]:
            Page().remark(result_timeout(ledger, waiting[0], SILENT_SECONDS).message)
        found = _wait_for(ledger, {job.id: job for job in found}, end)
        waiting = [job for job in found if job.status not in TERMINAL]
    if waiting:
        late = result_timeout(ledger, waiting[0], timeout.total_seconds())
        late.context["waiting"] = [job.id for job in waiting]
        raise late

    def show(page: Page) -> None:
        for job in found:
            page.line(f"Job {job.id} is {job.status.value.replace('_', '-')}.")

    return CommandResult({"jobs": [job_view(job) for job in found]}, show)


def _wait_for(ledger: "Ledger", seen: "dict[int, Job]", end: float) -> "list[Job]":
    """Wait until these jobs have ended, or until a time. A job that was deleted meanwhile has ended; return it as it was seen."""
    found = []
    for id_, job in seen.items():
        last, left = job, end - time.monotonic()
        if last.status not in TERMINAL:
            with contextlib.suppress(NotFound):
                last = ledger.wait(id_, timeout=left) if left > 0 else ledger.get(id_)
        found.append(last)
    return found


@click.command()
@click.argument("id", type=JOB_ID)
@click.option("--timeout", type=duration, default="0s", show_default=True, help="Wait this long for the end of the job: 30s.")
@with_existing_ledger
def result(ledger: "Ledger", *, id: int, timeout: timedelta) -> CommandResult:  # noqa: A002 - as it is called in the usage
    """Print the result of a job, as JSON.

    Exit 1 if there is none: the job has not ended, or it failed, was dead-lettered or cancelled. The error says why.

    \b
    Example:
      holdfast job result 12 --timeout 30s
    """
    found = ledger.result(id, timeout=timeout.total_seconds())
    text = json.dumps(found, ensure_ascii=False, indent=2)
    return CommandResult({"job_id": id, "result": found}, lambda page: page.block(text, indent=""))
