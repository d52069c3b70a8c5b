"""`holdfast job enqueue`: enqueue one job from the command line, or many from a file."""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, request_option, with_ledger
from holdfast.cli.completion import QUEUE, name_hint
from holdfast.cli.flow_options import flow_options
from holdfast.cli.output import Page, usage_error
from holdfast.cli.values import JOB_ID, duration, format_time, read_argument, schedule_options
from holdfast.core.limits import ENQUEUE_BATCH_MAX, PRIORITY_MAX, TYPED_BYTES_MAX, TYPED_LINES_BYTES_MAX, check_name
from holdfast.core.text import join_some
from holdfast.errors import HoldfastError, NotFound, ValidationError

if TYPE_CHECKING:
    from holdfast.ledger import DeclarationRecord, Job, Ledger

KINDS_SHOWN_MAX = 5


def json_object(option: str) -> Callable[[str], dict[str, Any]]:
    """Return a reader for this option's value: a JSON object in the argument itself, in a @FILE, or on standard input for -."""

    def read(value: str) -> dict[str, Any]:
        try:
            return parse_object(read_argument(value))
        except HoldfastError as error:
            raise click.BadParameter(error.message + _json_hint(option, value)) from None

    return read


def _json_hint(option: str, value: str) -> str:
    """Return how to write `name=x`, the form that other tools use, as JSON; an empty text for other values."""
    name, equals, text = value.partition("=")
    if not equals or not name.isidentifier() or len(value) > HINT_CHARACTERS_MAX:
        return ""
    written = json.dumps({name: int(text) if text.isdecimal() and text.isascii() else text}, ensure_ascii=False)
    return f". Write {option} {shlex.quote(written)}"


HINT_CHARACTERS_MAX = 80


def json_lines(file: str, limit: int) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; - is standard input. Skip empty lines. Raise if there are more than `limit`."""
    found: list[dict[str, Any]] = []
    left, number = TYPED_LINES_BYTES_MAX, 0
    try:
        with click.open_file(file, "rb") as lines:
            while line := lines.readline(TYPED_BYTES_MAX + 1):
                number, left = number + 1, left - len(line)
                if left < 0:
                    raise usage_error(f"{file} has more than {TYPED_LINES_BYTES_MAX:,} bytes", action="Split it.")
                if not line.strip():
                    continue
                if len(found) == limit:
                    raise usage_error(f"{file} has more than {limit:,} lines", action="Split it: each part is one transaction.")
                found.append(_parse_line(line, f"{file}, line {number}"))
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}") from None
    return found


def _parse_line(text: bytes, where: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except HoldfastError as error:
        raise usage_error(f"{where}: {error.message}", action="Correct it: nothing was done.") from None


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`. Raise if a key occurs twice."""
    from holdfast.core import strict_json

    found = strict_json.parse("it", body, TYPED_BYTES_MAX)
    if not isinstance(found, dict):
        raise ValidationError("it is not a JSON object")
    return found


@click.command()
@click.argument("kind", required=False)
@click.option("--args", type=json_object("--args"), metavar="JSON|@FILE|-", help="The arguments of the job, a JSON object.")
@click.option("--queue", type=QUEUE, help="The queue of the job. [default: the one that the kind's handler declares]")
@click.option(
    "--priority", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX), help="Jobs with a higher priority go first. [default: 0]"
)
@schedule_options
@click.option("--dedupe-key", help="If a live job of the queue has this key, return that job.")
@click.option("--dedupe", type=click.Choice(["live", "forever"]), help="Whether a finished job keeps its key. [default: live]")
@click.option("--dedupe-for", type=duration, help="Keep the key for this time from now on, also after the job's end.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["keep", "replace", "postpone"]),
    help="If a job that was never claimed has the key: keep it as it is, replace its arguments, or replace them and postpone it "
    "by --delay from now. [default: keep]",
)
@click.option("--postpone-max", type=duration, help="Postpone it no longer than this after it was enqueued. [default: 10 delays]")
@click.option("--tier", help="The tier of the job, which sets its heartbeat interval.")
@click.option("--correlation-id", help="Joins jobs that belong together.")
@click.option("--group", help="The group that the job joins; see `holdfast group`.")
@click.option(
    "--policy", type=json_object("--policy"), metavar="JSON|@FILE", help='A policy for this job, such as {"attempts_max": 3}.'
)
@click.option(
    "--depends-on", multiple=True, type=JOB_ID, metavar="ID", help="Wait until this job has succeeded; may be repeated."
)
@click.option(
    "--on-dependency-failure",
    type=click.Choice(["wait", "cancel", "dead_letter"]),
    help="What happens to the job when a job that it waits for fails. [default: dead_letter]",
)
@flow_options
@click.option(
    "--lines", type=click.Path(allow_dash=True), metavar="FILE|-", help="Many jobs, one JSON object a line, in one transaction."
)
@request_option
@with_ledger
def enqueue(ledger: "Ledger", *, kind: str | None, lines: str | None, request_id: str | None, **given: Any) -> CommandResult:
    """Enqueue a job, or many with --lines, all or none.

    \b
    Try:
      holdfast job enqueue index_page --queue crawl --args '{"url": "https://a.example"}'
      holdfast job enqueue report --queue mail --at 2026-12-24T18:00 --dedupe-key report-2026
      holdfast job enqueue index --queue search --dedupe-key page-7 --delay 30s --on-duplicate postpone --postpone-max 10m

    \b
    Example:
      holdfast job enqueue --lines jobs.jsonl

    A line has the options of `ledger.enqueue`: {"kind": "index_page", "args": {"url": "b"}, "queue": "crawl"}

    Without a queue, a job goes to the one that workers have declared for its kind. A kind that no worker has declared needs one.
    In that queue, a job also has the limits and labels that the handler declares, unless it is given others.
    """
    from holdfast.shapes import job_view

    options = {name: value for name, value in given.items() if value is not None and value != ()}
    if lines is not None:
        if kind is not None or options:
            raise usage_error("with --lines, everything about a job is in its line")
        return _enqueue_lines(ledger, lines, request_id)
    if kind is None:
        raise usage_error("name the kind of the job, or give --lines")
    item = declared_options(ledger, kind, options)
    taken = format_taken(options, item)
    made = ledger.enqueue(kind, item.pop("args", None), request_id=request_id, **item)
    text = _format_made(made, given.get("on_duplicate") or "keep")

    def show(page: Page) -> None:
        page.line(text)
        if taken and made.is_new:
            page.remark(taken)

    return CommandResult({"job": job_view(made), "is_new": made.is_new}, show)


def format_taken(given: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """Return which limits and labels were taken from the handler; an empty text if there are none."""
    taken = [
        f"{what} {join_some(list(item[name]))}"
        for name, what in (("limits", "limits"), ("requires", "labels"))
        if name in item and name not in given
    ]
    return f"Taken from its handler: {' and '.join(taken)}." if taken else ""


def _format_made(made: "Job", on_duplicate: str) -> str:
    """Return what became of an enqueue. A job that was never claimed has the values of a call that replaces or postpones."""
    if made.is_new:
        waits = f"; it waits for {join_some(made.waits_for)}" if made.waits_for else ""
        return f"Job {made.id} is {made.status.value} in {made.queue}{waits}."
    if on_duplicate == "keep":
        return format_kept(made)
    if made.status.value != "queued" or made.attempt:
        return f"Job {made.id} was there already and is {made.status.value}. It keeps its key, and nothing is changed."
    available = f", available at {format_time(made.available_at)}" if on_duplicate == "postpone" and not made.waits_for else ""
    return f"Job {made.id} was there already, and has these arguments now{available}."


def format_kept(found: "Job") -> str:
    """Return the status of the job that has the key of an enqueue, and how long it keeps the key if that is not until its end."""
    text = f"Job {found.id} was there already and is {found.status.value}."
    if found.record.dedupe_forever:
        return f"{text} It keeps its key for ever."
    return text if found.dedupe_until is None else f"{text} It keeps its key until {format_time(found.dedupe_until)}."


def _enqueue_lines(ledger: "Ledger", file: str, request_id: str | None) -> CommandResult:
    items = with_declared(ledger, json_lines(file, ENQUEUE_BATCH_MAX))
    made = ledger.enqueue_many(items, request_id=request_id)
    new = sum(job.is_new for job in made)

    def show(page: Page) -> None:
        existing = f", {len(made) - new} were there already" if new < len(made) else ""
        page.line(f"{new} jobs are enqueued{existing}.")

    return CommandResult({"job_ids": [job.id for job in made], "new": new}, show)


def with_declared(ledger: "Ledger", items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items, each with its own queue, limits and labels, else those that the handler of its kind declares."""
    declared = ledger.declarations()
    return [_declared(item, declared) for item in items]


def declared_options(ledger: "Ledger", kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job, with the queue, limits and labels that the handler of its kind declares, unless given."""
    item = with_declared(ledger, [{**options, "kind": kind}])[0]
    del item["kind"]
    return item


def _declared(item: dict[str, Any], declared: "Mapping[str, DeclarationRecord]") -> dict[str, Any]:
    """Return the item with a queue. Raise NotFound if it names none, and the handler of its kind declares none."""
    from holdfast.ledger.verbs.declarations import declared_item

    found = declared_item(item, declared)
    if found.get("queue") is None:
        raise _unknown_kind(item.get("kind"), declared)
    return found


def _unknown_kind(kind: Any, declared: "Mapping[str, DeclarationRecord]") -> NotFound:
    check_name("kind", kind)
    more = len(declared) - KINDS_SHOWN_MAX
    known = ", ".join(list(declared)[:KINDS_SHOWN_MAX]) + (f" … and {more} more" if more > 0 else "") or "none"
    refused = NotFound(f"no worker has declared the kind {kind!r:.80} in this ledger; declared kinds: {known}", kind=kind)
    refused.action = (
        f"{name_hint(kind, declared)}Start a worker that has a handler for it, or name the queue with --queue. "
        "If a worker was started just now, try again in a second."
    )
    return refused
