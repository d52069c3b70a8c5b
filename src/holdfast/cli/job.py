"""`holdfast job`: put work in, look at it, call it off, start it over."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.envelope import misuse
from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.several import each, only_for_one, refusal
from holdfast.cli.typed import json_lines, json_object
from holdfast.cli.values import duration, point
from holdfast.core.limits import ENQUEUE_BATCH_MAX, JOB_ID_MAX, PAGE_MAX, PRIORITY_MAX, REV_MAX
from holdfast.core.model import EventType, Status
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger

job_id = click.IntRange(1, JOB_ID_MAX)
request_option = click.option("--request-id", metavar="ID", help="Sent again with the same one, it is done once.")


@click.group()
def job() -> None:
    """Put jobs in, look at them, cancel them, start them over.

    \b
    Try:
      holdfast job enqueue index_page --queue crawl --args '{"url": "https://a.example"}'
      holdfast job list --queue crawl --status queued
    """


@job.command()
@click.argument("kind", required=False)
@click.option("--args", type=json_object, metavar="JSON|@FILE|-", help="Its arguments, a JSON object.")
@click.option("--queue", help="[default: default]")
@click.option("--priority", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX), help="Higher goes first. [default: 0]")
@click.option("--delay", type=duration, help="Not before so long from now: 30s, 5m.")
@click.option("--at", "available_at", type=point, metavar="TIME", help="Not before: 2026-03-01T12:00 (UTC unless it says so).")
@click.option("--dedupe-key", help="Where a live job has it, that one is the answer.")
@click.option("--dedupe", type=click.Choice(["live", "forever"]), help="Whether a finished job keeps its key. [default: live]")
@click.option("--tier")
@click.option("--correlation-id")
@click.option("--policy", type=json_object, metavar="JSON|@FILE", help='Its own policy, such as {"attempts_max": 3}.')
@click.option("--lines", metavar="FILE|-", help="Many jobs, one JSON object a line, in one transaction.")
@request_option
@asks_a_ledger
def enqueue(ledger: "Ledger", *, kind: str | None, lines: str | None, request_id: str | None, **given: Any) -> Answer:
    """Put in a job, or with --lines many: all or none.

    \b
    Try:
      holdfast job enqueue index_page --queue crawl --args '{"url": "https://a.example"}'
      holdfast job enqueue report --at 2026-12-24T18:00 --dedupe-key report-2026

    \b
    Example:
      holdfast job enqueue --lines jobs.jsonl

    A line has the options of `ledger.enqueue`: {"kind": "index_page", "args": {"url": "b"}, "queue": "crawl"}
    """
    from holdfast.cli.jobs import view

    options = {name: value for name, value in given.items() if value is not None}
    if lines is not None:
        if kind is not None or options:
            raise misuse("with --lines, everything about a job is in its line")
        return _enqueue_lines(ledger, lines, request_id)
    if kind is None:
        raise misuse("name the kind of the job, or give --lines")
    made = ledger.enqueue(kind, options.pop("args", None), request_id=request_id, **options)
    said = f"Job {made.id} is {made.status.value} in {made.queue}." if made.is_new else f"Job {made.id} was there already."
    return Answer({"job": view(made), "is_new": made.is_new}, lambda page: page.line(said))


def _enqueue_lines(ledger: "Ledger", file: str, request_id: str | None) -> Answer:
    made = ledger.enqueue_many(json_lines(file, ENQUEUE_BATCH_MAX), request_id=request_id)
    new = sum(job.is_new for job in made)

    def show(page: Page) -> None:
        there = f", {len(made) - new} were there already" if new < len(made) else ""
        page.line(f"{new} jobs are enqueued{there}.")

    return Answer({"job_ids": [job.id for job in made], "new": new}, show)


@job.command()
@click.argument("id", type=job_id)
@asks_a_ledger
def get(ledger: "Ledger", *, id: int) -> Answer:  # noqa: A002 - as it is called in the usage
    """Everything about one job.

    \b
    Example:
      holdfast job get 12 --json
    """
    from holdfast.cli.jobs import show_job, view

    found = ledger.get(id)
    return Answer({"job": view(found)}, lambda page: show_job(page, found))


@job.command("list")
@click.option("--status", multiple=True, type=click.Choice([status.value for status in Status]), help="As often as you like.")
@click.option("--queue")
@click.option("--kind")
@click.option("--correlation-id")
@click.option("--replay-of", type=job_id, metavar="ID", help="Those that this job was started over as.")
@click.option("--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="The next page: after the last id of this one.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True)
@asks_a_ledger
def list_(ledger: "Ledger", *, status: tuple[str, ...], limit: int, **chosen: Any) -> Answer:
    """Jobs, the oldest first.

    \b
    Try:
      holdfast job list --status running --status stalled
    """
    from holdfast.cli.jobs import HEADS, row, view

    now = ledger.now()
    found = ledger.list(status=list(status) or None, limit=limit, **chosen)
    more = found[-1].id if len(found) == limit else None

    def show(page: Page) -> None:
        if not found:
            page.line("There are no such jobs.")
            return
        page.table(HEADS, [row(job, now) for job in found])
        if more is not None:
            page.line(f"  There may be more: --after {more}", dim=True)

    return Answer({"jobs": [view(job) for job in found], "next_after": more}, show)


@job.command()
@click.argument("ids", type=job_id, nargs=-1, required=True, metavar="ID…")
@click.option("--hard", is_flag=True, help="Its holder is not asked: what it writes from now on is refused.")
@click.option("--reason", help="Why, for the record.")
@click.option("--expected-rev", type=click.IntRange(1, REV_MAX), help="Only if this is the job's revision.")
@request_option
@asks_a_ledger
def cancel(
    ledger: "Ledger",
    *,
    ids: tuple[int, ...],
    hard: bool,
    reason: str | None,
    expected_rev: int | None,
    request_id: str | None,
) -> Answer:
    """Call jobs off. One that is running is asked to make its safe exit, unless --hard.

    \b
    Example:
      holdfast job cancel 12 13 --reason "not needed any more"
    """
    only_for_one(ids, expected_rev=expected_rev, request_id=request_id)
    why = {} if reason is None else {"reason": reason}
    done = each(ids, lambda id_: ledger.cancel(id_, hard=hard, expected_rev=expected_rev, request_id=request_id, **why))
    told = [job for job in done.values() if not isinstance(job, HoldfastError)]
    said = [{"job_id": job.id, "status": job.status, "rev": job.rev, "is_over": job.finished_at is not None} for job in told]

    def show(page: Page) -> None:
        for job in told:
            page.line(f"Job {job.id} is cancelled." if job.finished_at else f"Job {job.id} is asked to make its safe exit.")

    return Answer({"cancelled": said}, show, refusal(done, {"cancelled": said}))


@job.command()
@click.argument("ids", type=job_id, nargs=-1, required=True, metavar="ID…")
@request_option
@asks_a_ledger
def replay(ledger: "Ledger", *, ids: tuple[int, ...], request_id: str | None) -> Answer:
    """Start finished jobs over, each as a new job.

    \b
    Example:
      holdfast job replay 12
    """
    only_for_one(ids, request_id=request_id)
    done = each(ids, lambda id_: ledger.replay(id_, request_id=request_id))
    return replayed([job for job in done.values() if not isinstance(job, HoldfastError)], done)


def replayed(made: "list[Job]", done: "dict[int, Job | HoldfastError]") -> Answer:
    """What became of those that were to be started over."""
    said = [{"job_id": job.replay_of, "replayed_as": job.id, "is_new": job.is_new} for job in made]

    def show(page: Page) -> None:
        for job in made:
            page.line(f"  job {job.replay_of} is replayed as {job.id}" + ("" if job.is_new else ", which was on its way already"))
        page.line(f"{len(made)} replayed.")

    return Answer({"replayed": said}, show, refusal(done, {"replayed": said}))


@job.command()
@click.argument("id", type=job_id)
@click.option("--type", "types", multiple=True, type=click.Choice([kind.value for kind in EventType]), help="Only these.")
@click.option(
    "--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="The next page: after the last position of this one."
)
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=PAGE_MAX, show_default=True)
@asks_a_ledger
def events(ledger: "Ledger", *, id: int, types: tuple[str, ...], after: int, limit: int) -> Answer:  # noqa: A002
    """What happened to a job, the oldest first.

    \b
    Example:
      holdfast job events 12 --type stalled --type requeued
    """
    from holdfast.cli.jobs import show_events

    ledger.get(id)
    found = ledger.events(id, types=list(types) or None, after=after, limit=limit)
    more = found[-1].pos if len(found) == limit else None

    def show(page: Page) -> None:
        if found:
            show_events(page, found)
        else:
            page.line("There are no such events.")
        if more is not None:
            page.line(f"  There may be more: --after {more}", dim=True)

    return Answer({"events": found, "next_after": more}, show)
