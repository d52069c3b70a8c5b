"""`holdfast group`: jobs that belong together, their counts, and what follows them."""

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.job_enqueue import json_object
from holdfast.cli.output import CommandError, Page
from holdfast.cli.values import WholeNumber, duration, format_time
from holdfast.core import limits
from holdfast.core.text import pluralize

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.ledger import GroupChange, GroupRecord, Ledger

SHOWN_MAX = 10
"""Dead jobs that `get` names, and refusals that `cancel` and `replay` name."""


@click.group(cls=NounGroup)
def group() -> None:
    """Count jobs that belong together, and follow them with a job.

    Jobs join a group when they are enqueued, until it is closed.

    \b
    Try:
      holdfast group add import-42 --then '{"kind": "publish", "queue": "web"}'
      holdfast group list
    """


@group.command()
@click.argument("name")
@click.option("--then", type=json_object("--then"), metavar="JSON|@FILE", help="The job to make when all have succeeded.")
@click.option("--on-dead", type=json_object("--on-dead"), metavar="JSON|@FILE", help="The job to make when the first one fails.")
@request_option
@with_ledger
def add(ledger: "Ledger", *, name: str, then: Any, on_dead: Any, request_id: str) -> CommandResult:
    """Make a group that jobs can join.

    A follow-up job is an object with the options of `ledger.enqueue`: a kind, and args, queue and others. --on-dead is made
    when the first job fails, is cancelled or is dead-lettered. Each follow-up job is made once.

    \b
    Try:
      holdfast group add import-42 --then '{"kind": "publish", "queue": "web"}'
      holdfast job enqueue load --queue imports --group import-42
      holdfast group close import-42
    """
    made = ledger.group(name, then=then, on_dead=on_dead, request_id=request_id)
    return CommandResult({"group": made}, lambda page: page.line(f"Group {name} is there: {_state(made)}."))


@group.command("list")
@click.option("--all", "every", is_flag=True, help="Also groups that are done.")
@with_existing_ledger
def list_(ledger: "Ledger", *, every: bool) -> CommandResult:
    """List groups by name, those that are not done.

    \b
    Try:
      holdfast group list --all
    """
    found: list[GroupRecord] = []
    while page := ledger.groups(after=found[-1].name if found else "", unfinished=not every):
        found += page

    def show(page: Page) -> None:
        rows = [(one.name, _state(one), one.total, one.live, one.succeeded, _dead(one), _percent(one)) for one in found]
        heads = ("group", "state", "jobs", "live", "succeeded", "dead", "progress")
        page.listing(heads, rows, "There are no groups." if every else "There are no groups that are not done.")
        if not every:
            page.remark("Groups that are done are not shown, also those with failed jobs: --all shows them.")

    return CommandResult({"groups": found}, show)


@group.command()
@click.argument("name")
@with_existing_ledger
def get(ledger: "Ledger", *, name: str) -> CommandResult:
    """Show a group, with its counts by status.

    \b
    Example:
      holdfast group get import-42
    """
    found = ledger.get_group(name)
    dead = ledger.group_jobs(name, status=["failed", "cancelled", "dead_lettered"], limit=SHOWN_MAX) if _dead(found) else []

    def show(page: Page) -> None:
        page.fields(
            [
                ("group", found.name),
                ("state", _state(found)),
                ("jobs", f"{found.total}, {_percent(found)} succeeded"),
                *((status, count) for status, count in _counts(found).items() if count),
                ("then", _follow_up(found.then, found.then_job)),
                ("on dead", _follow_up(found.on_dead, found.on_dead_job)),
                *([("last error", found.last_error)] if found.last_error else []),
                ("made", f"{format_time(found.created_at)} by {found.created_by}"),
                *([("closed", f"{format_time(found.closed_at)} by {found.closed_by}")] if found.closed_at else []),
                *([("cancelled", format_time(found.cancelled_at))] if found.cancelled_at else []),
            ]
        )
        if dead:
            page.table(("job", "kind", "status"), [(job.id, job.kind, job.status.value) for job in dead])
        if _dead(found) > len(dead):
            page.remark(f"{_dead(found) - len(dead)} more did not succeed.")

    return CommandResult({"group": found, "dead_jobs": [job.id for job in dead]}, show)


@group.command()
@click.argument("name")
@click.option("--status", multiple=True, help="Only jobs in this status; may be repeated.")
@click.option("--after", type=WholeNumber(0, limits.JOB_ID_MAX), default=0, metavar="ID", help="Only jobs after this one.")
@click.option("--limit", type=WholeNumber(1, limits.PAGE_MAX), default=100, show_default=True, help="How many jobs.")
@with_existing_ledger
def jobs(ledger: "Ledger", *, name: str, status: tuple[str, ...], after: int, limit: int) -> CommandResult:
    """List the jobs of a group.

    A replay is listed in the place of the job that it repeats.

    \b
    Example:
      holdfast group jobs import-42 --status failed
    """
    from holdfast.shapes import job_view

    found = ledger.group_jobs(name, status=status or None, after=after, limit=limit)
    heads, rows = ("job", "kind", "queue", "status"), [(job.id, job.kind, job.queue, job.status.value) for job in found]
    data = {"jobs": [job_view(job) for job in found]}
    return CommandResult(data, lambda page: page.listing(heads, rows, "There are no such jobs."))


@group.command()
@click.argument("name")
@request_option
@with_existing_ledger
def close(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Let no more jobs join a group.

    If all its jobs have succeeded, its follow-up job is made. If that was refused before, it is tried again.

    \b
    Example:
      holdfast group close import-42
    """
    found = ledger.close_group(name, request_id=request_id)
    left = f"{found.live:,} of {pluralize(found.total, 'job')} left"
    state = _state(found) if found.done else left
    return CommandResult({"group": found}, lambda page: page.line(f"Group {name} is closed: {state}."))


@group.command()
@click.argument("name")
@click.option("--hard", is_flag=True, help="Do not wait for holders: refuse their writes from now on.")
@click.option("--reason", default="requested", show_default=True, help="Why, for the history of each job.")
@with_existing_ledger
def cancel(ledger: "Ledger", *, name: str, hard: bool, reason: str) -> CommandResult:
    """Close a group, and cancel its jobs that have not ended.

    \b
    Example:
      holdfast group cancel import-42 --reason "wrong file"
    """
    change = ledger.cancel_group(name, hard=hard, reason=reason)
    were = "was" if change.changed == 1 else "were"
    return _changed(change, f"Group {name} is cancelled: {pluralize(change.changed, 'job')} {were} told to end.")


@group.command()
@click.argument("name")
@click.option("--reason", help="Why, for the history of each job.")
@with_existing_ledger
def replay(ledger: "Ledger", *, name: str, reason: str | None) -> CommandResult:
    """Replay the jobs of a group that did not succeed.

    Each replay takes the place of its job in the group. Discarded jobs are left out.

    \b
    Example:
      holdfast group replay import-42
    """
    change = ledger.replay_group(name, reason=reason)
    are = "is" if change.changed == 1 else "are"
    return _changed(change, f"{pluralize(change.changed, 'job')} of group {name} {are} replayed.")


@group.command()
@click.argument("name")
@click.option("--timeout", type=duration, help="Stop after this time. [default: none]")
@with_existing_ledger
def wait(ledger: "Ledger", *, name: str, timeout: "timedelta | None") -> CommandResult:
    """Wait until a group is closed and all its jobs have ended.

    It also waits for the follow-up job that is due. It fails if that takes longer than --timeout, or if some jobs did not
    succeed.

    \b
    Example:
      holdfast group wait import-42 --timeout 10m
    """
    found = ledger.wait_group(name, timeout=None if timeout is None else timeout.total_seconds())
    failed = None
    if not found.done:
        failed = CommandError("result_timeout", f"group {name} is not done", action="Wait longer.", group=found)
    elif _dead(found):
        message = f"{_dead(found)} of {found.total} jobs of group {name} did not succeed"
        failed = CommandError("no_result", message, action=f"holdfast group get {name} names them.", group=found)
    return CommandResult({"group": found}, lambda page: page.line(f"Group {name} is {_state(found)}."), failed)


def _changed(change: "GroupChange", text: str) -> CommandResult:
    def show(page: Page) -> None:
        page.line(text)
        for refusal in change.refusals[:SHOWN_MAX]:
            page.remark(f"Job {refusal.job_id} was left: {refusal.message}.")
        if change.refused > SHOWN_MAX:
            page.remark(f"{change.refused - SHOWN_MAX} more were left.")

    return CommandResult(change, show)


def _percent(found: "GroupRecord") -> str:
    """Return the share of successes. It is 100% only if all have succeeded."""
    return f"{int(100 * found.progress)}%"


def _dead(found: "GroupRecord") -> int:
    return found.failed + found.cancelled + found.dead_lettered


def _counts(found: "GroupRecord") -> dict[str, int]:
    ended = {name: getattr(found, name) for name in ("succeeded", "failed", "cancelled", "dead_lettered")}
    return (found.live_by_status or {}) | ended


def _state(found: "GroupRecord") -> str:
    if found.done:
        return f"done, {found.succeeded} of {found.total} succeeded"
    return f"{'open' if found.closed_at is None else 'closed'}, {found.live} of {found.total} left"


def _follow_up(item: dict[str, Any] | None, job_id: int | None) -> str:
    if item is None:
        return "–"
    args = json.dumps(item["args"], ensure_ascii=False)
    return f"{item['kind']} in {item['queue']} {args}" + ("" if job_id is None else f", job {job_id}")
