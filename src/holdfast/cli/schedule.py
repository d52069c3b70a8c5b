"""`holdfast schedule`: make jobs at set times, and look at the times before."""

import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import QUEUE
from holdfast.cli.flow_options import flow_options
from holdfast.cli.job_enqueue import declared_options, format_kept, format_taken, json_object
from holdfast.cli.output import Page, usage_error
from holdfast.cli.values import WholeNumber, duration, format_time, point
from holdfast.core import limits
from holdfast.core.schedule import Missed, Overlap
from holdfast.core.text import format_duration
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ledger import Ledger, ScheduleRecord


def timing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say when a schedule fires."""
    for option in (
        click.option("--end", type=point, metavar="TIME", help="The last time at which it may fire."),
        click.option("--start", type=point, metavar="TIME", help="The first time; --every counts from it."),
        click.option("--tz", default="UTC", show_default=True, help="The time zone of --cron: Europe/Berlin."),
        click.option("--every", type=duration, help="A time between firings: 30s, 15m, 1h."),
        click.option("--cron", help='Minute, hour, day of month, month, day of week: "0 3 * * *", or @daily.'),
    ):
        function = option(function)
    return function


count_option = click.option(
    "--count", type=WholeNumber(1, limits.FIRINGS_SHOWN_MAX), default=10, show_default=True, help="How many times to show."
)


@click.group(cls=NounGroup)
def schedule() -> None:
    """Make jobs at set times.

    Workers and servers make the jobs. A time zone's changes between summer and winter are taken into account.

    \b
    Try:
      holdfast schedule preview --cron "0 3 * * *" --tz Europe/Berlin
      holdfast schedule list
    """


@schedule.command()
@click.argument("name")
@click.argument("kind")
@timing_options
@click.option("--args", type=json_object("--args"), metavar="JSON|@FILE|-", help="The arguments of its jobs, a JSON object.")
@click.option("--queue", type=QUEUE, help="The queue of its jobs. [default: the one that the kind's handler declares]")
@click.option("--missed", type=click.Choice([one.value for one in Missed]), help="Firings while no process ran. [default: one]")
@click.option(
    "--overlap", type=click.Choice([one.value for one in Overlap]), help="While the job before has not ended. [default: allow]"
)
@click.option("--jitter", type=duration, help="Delay each firing by up to this time.")
@click.option(
    "--priority", type=click.IntRange(-limits.PRIORITY_MAX, limits.PRIORITY_MAX), help="Jobs with a higher priority go first."
)
@click.option("--dedupe-key", help="Make no job while a live job of the queue has this key.")
@click.option("--dedupe-for", type=duration, help="Keep the key of each job for this time, also after its end.")
@click.option("--on-duplicate", type=click.Choice(["keep", "replace"]), help="What to do with a waiting job that has the key.")
@flow_options
@click.option("--tier", help="The tier of its jobs.")
@click.option("--policy", type=json_object("--policy"), metavar="JSON|@FILE", help="A policy for its jobs.")
@request_option
@with_ledger
def add(ledger: "Ledger", *, name: str, kind: str, request_id: str, **given: Any) -> CommandResult:
    """Add a schedule, or replace the one of this name.

    --missed says what happens to firings that were due while no worker and no server ran: skip them, make one job for all of
    them, or make all. --overlap says what a firing does while the job before has not ended: allow both, skip the firing, or
    cancel that job.

    \b
    Try:
      holdfast schedule add nightly report --cron "0 3 * * *" --tz Europe/Berlin --queue reports
      holdfast schedule add refresh crawl --every 15m --queue crawl --overlap skip
    """
    chosen = {option: value for option, value in given.items() if value is not None and value != ()}
    fields = declared_options(ledger, kind, chosen)
    taken = format_taken(chosen, fields)
    was_declared = False
    with contextlib.suppress(NotFound):
        was_declared = ledger.schedule(name).declared
    made = ledger.set_schedule(name, kind, fields.pop("args", None), request_id=request_id, **fields)

    def show(page: Page) -> None:
        page.line(f"Schedule {name} makes {kind} jobs, {_next(made)}.")
        if taken:
            page.remark(taken)
        if was_declared:
            from holdfast.core.explain.formatting import quote_argument

            give_back = f"holdfast schedule remove {quote_argument(name)}"
            page.remark(
                "Its handler declares it. This one takes its place, and no worker changes it. "
                f"To give it back to the code, remove it: {give_back}. The next worker that starts declares it again."
            )
        if made.created_at != made.updated_at:
            page.remark("It was there before, and is replaced: options that are not given have their defaults.")

    return CommandResult({"schedule": made}, show)


@schedule.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List schedules by name.

    Those that are set by a handler are declared in the code of an app. The others are set by operators.

    \b
    Try:
      holdfast schedule list
    """
    found: list[ScheduleRecord] = []
    while page := ledger.schedules(after=found[-1].name if found else ""):
        found += page
    rows = [
        (
            one.name,
            one.kind,
            one.queue,
            _times_of(one),
            _state(one),
            format_time(one.last_at),
            one.fired,
            one.skipped,
            "handler" if one.declared else "operator",
        )
        for one in found
    ]
    heads = ("schedule", "kind", "queue", "times", "next", "last", "fired", "skipped", "set by")
    return CommandResult({"schedules": found}, lambda page: page.listing(heads, rows, "There are no schedules."))


@schedule.command()
@click.argument("name")
@with_existing_ledger
def get(ledger: "Ledger", *, name: str) -> CommandResult:
    """Show one schedule.

    \b
    Example:
      holdfast schedule get nightly
    """
    found = ledger.schedule(name)

    def show(page: Page) -> None:
        page.fields(
            [
                ("schedule", found.name + (" (declared by its handler)" if found.declared else "")),
                ("job", f"{found.kind} in {found.queue}"),
                ("arguments", json.dumps(found.args, ensure_ascii=False)),
                *([("options", json.dumps(found.options, ensure_ascii=False))] if found.options else []),
                ("times", _times_of(found)),
                *([("jitter", f"up to {format_duration(round(found.jitter_s * 1_000_000))}")] if found.jitter_s else []),
                ("missed", found.missed),
                ("overlap", found.overlap),
                ("next", _state(found)),
                ("last", "–" if found.last_at is None else f"{format_time(found.last_at)}, job {found.last_job}"),
                *([("last error", found.last_error)] if found.last_error else []),
                ("fired", f"{found.fired}, skipped {found.skipped}"),
                ("set", f"{format_time(found.created_at)} by {found.created_by}"),
            ]
        )

    return CommandResult({"schedule": found}, show)


@schedule.command()
@click.argument("name")
@request_option
@with_existing_ledger
def pause(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Pause a schedule: it makes no jobs, and misses none.

    \b
    Example:
      holdfast schedule pause nightly
    """
    found = ledger.pause_schedule(name, request_id=request_id)
    return CommandResult({"schedule": found}, lambda page: page.line(f"Schedule {name} is paused."))


@schedule.command()
@click.argument("name")
@request_option
@with_existing_ledger
def resume(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Let a paused schedule make jobs again.

    \b
    Example:
      holdfast schedule resume nightly
    """
    found = ledger.resume_schedule(name, request_id=request_id)
    return CommandResult({"schedule": found}, lambda page: page.line(f"Schedule {name} makes {found.kind} jobs, {_next(found)}."))


@schedule.command()
@click.argument("name")
@request_option
@with_existing_ledger
def run(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Make a job of a schedule now.

    Its times stay as they are.

    \b
    Example:
      holdfast schedule run nightly
    """
    from holdfast.shapes import job_view

    job = ledger.run_schedule(name, request_id=request_id)
    text = f"Job {job.id} is {job.status.value} in {job.queue}." if job.is_new else format_kept(job)
    return CommandResult({"job": job_view(job), "is_new": job.is_new}, lambda page: page.line(text))


@schedule.command()
@click.argument("name")
@request_option
@with_existing_ledger
def remove(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Remove a schedule.

    Its jobs stay.

    \b
    Example:
      holdfast schedule remove nightly
    """
    found = ledger.schedule(name)
    ledger.remove_schedule(name, request_id=request_id)

    def show(page: Page) -> None:
        page.line(f"Schedule {name} is removed.")
        if found.declared:
            page.remark("Its handler declares it: it comes back when a worker starts. Pause it instead to keep it away.")

    return CommandResult({"removed": name}, show)


@schedule.command()
@click.argument("name", required=False)
@timing_options
@count_option
@with_ledger
def preview(ledger: "Ledger", *, name: str | None, count: int, **given: Any) -> CommandResult:
    """Show the next times of a schedule.

    Without a name, show those of the given --cron or --every.

    \b
    Try:
      holdfast schedule preview --cron "30 2 * * *" --tz Europe/Berlin --count 3
      holdfast schedule preview --every 15m
    """
    fields = {option: value for option, value in given.items() if value is not None}
    if name is None and not {"cron", "every"} & fields.keys():
        raise usage_error("name a schedule, or give --cron or --every")
    if name is None:
        zone = fields["tz"]
        times = ledger.next_firings(count=count, **fields)
    elif fields != {"tz": "UTC"}:
        raise usage_error("give the name of a schedule or its times, not both")
    else:
        zone = ledger.schedule(name).tz
        times = ledger.next_firings(name, count=count)

    def show(page: Page) -> None:
        if not times:
            page.line("It does not fire any more.")
        for at in times:
            page.line(_local(at, zone))

    return CommandResult({"times": times, "tz": zone}, show)


def _local(at: "datetime", zone: str) -> str:
    """Return a time in UTC, and on the clock of its zone."""
    if zone == "UTC":
        return format_time(at)
    from zoneinfo import ZoneInfo

    return f"{format_time(at)}  {at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}"


def _times_of(found: "ScheduleRecord") -> str:
    if found.every_s is None:
        return f"{found.cron} {found.tz}"
    return f"every {format_duration(round(found.every_s * 1_000_000))}"


def _state(found: "ScheduleRecord") -> str:
    if found.paused_at is not None:
        return f"paused by {found.paused_by}"
    return "ended" if found.next_at is None else format_time(found.next_at)


def _next(found: "ScheduleRecord") -> str:
    return "but none is left" if found.next_at is None else f"next at {format_time(found.next_at)}"
