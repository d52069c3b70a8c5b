"""`holdfast events`: follow, export and append events."""

import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from holdfast.cli.agent_commands import json_option
from holdfast.cli.command import (
    CommandResult,
    NounGroup,
    as_json_option,
    db_option,
    discard_unwritten_output,
    open_ledger,
    print_result,
    with_ledger,
)
from holdfast.cli.config import ledger_url
from holdfast.cli.job_views import event_text
from holdfast.cli.output import Page, ProgressLine, open_output, success_line, usage_error
from holdfast.cli.values import EventTypes, dialect_option, format_time, type_option
from holdfast.core.formatting import RETRIED
from holdfast.core.limits import ENVELOPE_BYTES_MAX, JOB_ID_MAX
from holdfast.core.model import EventType
from holdfast.core.text import pluralize
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from holdfast.ledger import Event, Ledger


EVENT_STYLES: dict[EventType, dict[str, Any]] = {
    EventType.HEARTBEAT: {"dim": True},
    EventType.SUCCEEDED: {"fg": "green"},
    EventType.STALLED: {"fg": "yellow"},
    EventType.FAILED: {"fg": "red"},
    EventType.DEAD_LETTERED: {"fg": "red"},
}


@click.command()
@click.option(
    "--after", type=click.IntRange(0, JOB_ID_MAX), help="Only events after this position. [default: now; with --once, 0]"
)
@click.option("--job", "job_id", type=click.IntRange(1, JOB_ID_MAX), metavar="ID", help="Only events of this job.")
@type_option
@click.option("--no-beats", is_flag=True, help="Leave out heartbeats, which are most of the events.")
@click.option("--follow/--once", default=True, help="Wait for more events, or end. [default: follow]")
@dialect_option
@db_option
@as_json_option
def tail(
    *,
    after: int | None,
    job_id: int | None,
    types: tuple[tuple[str, ...], ...],
    no_beats: bool,
    follow: bool,
    dialect: str,
    db: str | None,
    as_json: bool,
) -> None:
    """Follow events, one line each.

    It ends at ^C, or when its output is closed.

    With --json, every line is a complete answer. To continue later, give the last position you have seen to --after.

    \b
    Try:
      holdfast events tail --once --no-beats

    \b
    Example:
      holdfast events tail --type stalled --type dead_lettered
      holdfast events tail --dialect liveness --json
    """
    print_event = _json_printer(dialect) if as_json else _text_printer(Page(), dialect)
    wanted = _types_to_show(types, no_beats)
    with _until_interrupted(), open_ledger(ledger_url(db), create=False) as ledger:
        seen = (ledger.position() if follow else 0) if after is None else after
        try:
            for page in (
                _follow_events(ledger, seen, job_id, wanted) if follow else _existing_events(ledger, seen, job_id, wanted)
            ):
                for event, words in zip(page, ledger.in_dialect(page, dialect), strict=True):
                    print_event(event, words)
                    seen = event.pos
        except Unavailable as error:
            error.action = f"Continue where it stopped, with --after {seen}."
            raise


def _types_to_show(types: tuple[tuple[str, ...], ...], no_beats: bool) -> EventTypes:
    found = EventTypes.of(types)
    if no_beats and EventType.HEARTBEAT.value in found.shown:
        raise usage_error("--no-beats leaves nothing of --type heartbeat", action="Leave out one of them.")
    if found.shown or not no_beats:
        return found
    return EventTypes.of([[kind.value for kind in EventType if kind is not EventType.HEARTBEAT], [RETRIED]])


def _follow_events(ledger: "Ledger", after: int, job_id: int | None, types: EventTypes) -> "Iterator[list[Event]]":
    for event in ledger.follow(after):
        if (job_id is None or event.job_id == job_id) and types.has(event):
            yield [event]


def _existing_events(ledger: "Ledger", after: int, job_id: int | None, types: EventTypes) -> "Iterator[list[Event]]":
    """Yield pages of the events that exist now. Later events are ignored, so that the iteration ends."""
    until = ledger.position()
    while after < until and (page := ledger.events(job_id, types=types.stored, after=after)):
        yield [event for event in page if event.pos <= until and types.has(event)]
        after = page[-1].pos


def _json_printer(dialect: str) -> "Callable[[Event, dict[str, Any]], None]":
    def print_event(event: "Event", words: dict[str, Any]) -> None:
        click.echo(success_line({"event": event} if dialect == Dialect.HOLDFAST else {"dialect": dialect, "event": words}))

    return print_event


def _text_printer(page: Page, dialect: str) -> "Callable[[Event, dict[str, Any]], None]":
    def print_event(event: "Event", words: dict[str, Any]) -> None:
        what, why = event_text(event, words, dialect)
        head = f"{event.pos:>8}  {format_time(event.received_at)}  {what:<16}"
        text = f"{head}  job {event.job_id}, attempt {event.attempt}, by {event.actor}"
        page.line(f"{text}  {why}" if why else text, **EVENT_STYLES.get(event.type, {}))

    return print_event


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """End the block without an error at SIGINT, at SIGTERM and when the output is closed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    over = threading.Event()
    arguments = (threading.get_ident(), over)
    threading.Thread(target=_interrupt_when_output_closes, args=arguments, name="holdfast-reader", daemon=True).start()
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        discard_unwritten_output()
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)


def _interrupt_when_output_closes(main_thread: int, over: threading.Event) -> None:
    """Interrupt the main thread when the output is closed, unless `over` is set.

    Without this, `events tail` would notice that its reader is gone only at the next event.
    """
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    poll.poll()
    if not over.is_set():
        signal.pthread_kill(main_thread, signal.SIGINT)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; else standard output.")
@db_option
@as_json_option
def export(*, out: Path | None, db: str | None, as_json: bool) -> None:
    """Export the whole history as of one moment.

    The export has the sealed events and the newer ones.

    \b
    Try:
      holdfast events export --out all.jsonl
    """
    if out is None and as_json:
        raise usage_error("--json needs --out: the export itself is JSON")
    is_on_screen = out is None and sys.stdout.isatty()
    showing = ProgressLine("positions exported", quiet=is_on_screen)
    with open_ledger(ledger_url(db), create=False) as ledger, open_output(out) as write, showing as progress:
        made = ledger.export(write, progress=progress)
    if out is not None:
        are = "is" if made.events == 1 else "are"
        events, jobs, heads = pluralize(made.events, "event"), pluralize(made.jobs, "job"), pluralize(made.heads, "head")
        text = f"{events} of {jobs} {are} in {out}, under {heads}."
        print_result(CommandResult({"file": str(out), "lines": made}, lambda page: page.line(text)), as_json)


@click.group(cls=NounGroup)
def events() -> None:
    """Follow and export events, and record signed ones.

    \b
    Try:
      holdfast events tail --once
    """


@events.command()
@click.argument("file", type=click.File("rb"), metavar="FILE")
@json_option("--content", "The content whose hash is signed: a result, a heartbeat or an error.")
@with_ledger
def append(ledger: "Ledger", *, file: BinaryIO, content: msgspec.Raw | None) -> CommandResult:
    """Record a signed event from a file, or from - (stdin).

    The file is a statement in Holdfast's own shape or in a robot's, with its keyId and signature. The newest one of a job may be
    sent again.

    \b
    Example:
      holdfast events append beat.json
      holdfast events append done.json --content '{"rooms": 2}'
    """
    given = {} if content is None else {"content": msgspec.json.decode(content)}
    event = ledger.append(file.read(ENVELOPE_BYTES_MAX + 1), **given)
    text = f"Recorded: {event.type.value} of job {event.job_id}, rev {event.rev}, signed by {event.key_id}."
    return CommandResult({"event": event}, lambda page: page.line(text))


events.add_command(export)
events.add_command(tail)
