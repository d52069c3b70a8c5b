"""`holdfast events tail`: events as they come, one line each."""

import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.address import ledger_url
from holdfast.cli.ending import forget_output
from holdfast.cli.envelope import misuse, success
from holdfast.cli.frame import as_json_option, db_option, open_ledger
from holdfast.cli.page import Page
from holdfast.cli.values import EventTypes, dialect_option, stamp, type_option
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import EventType
from holdfast.core.vocabulary import Dialect
from holdfast.core.words import RETRIED, event_words
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from holdfast.ledger import Event, Ledger

STYLES: dict[EventType, dict[str, Any]] = {
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

    With --json, every line is an answer by itself. To go on later, give the last position you have seen to --after.

    \b
    Try:
      holdfast events tail --once --no-beats

    \b
    Example:
      holdfast events tail --type stalled --type dead_lettered
      holdfast events tail --dialect liveness --json
    """
    tell = _json_teller(dialect) if as_json else _teller(Page(), dialect)
    wanted = _wanted(types, no_beats)
    with _until_told(), open_ledger(ledger_url(db), create=False) as ledger:
        seen = (ledger.position() if follow else 0) if after is None else after
        try:
            for event in _following(ledger, seen, job_id, wanted) if follow else _there(ledger, seen, job_id, wanted):
                tell(event, *ledger.in_dialect([event], dialect))
                seen = event.pos
        except Unavailable as error:
            error.action = f"Go on where it broke off, with --after {seen}."
            raise


def _wanted(types: tuple[tuple[str, ...], ...], no_beats: bool) -> EventTypes:
    found = EventTypes.of(types)
    if no_beats and EventType.HEARTBEAT.value in found.shown:
        raise misuse("--no-beats leaves nothing of --type heartbeat", action="Leave out one of them.")
    if found.shown or not no_beats:
        return found
    return EventTypes.of([[kind.value for kind in EventType if kind is not EventType.HEARTBEAT], [RETRIED]])


def _following(ledger: "Ledger", after: int, job_id: int | None, types: EventTypes) -> "Iterator[Event]":
    for event in ledger.follow(after):
        if (job_id is None or event.job_id == job_id) and types.has(event):
            yield event


def _there(ledger: "Ledger", after: int, job_id: int | None, types: EventTypes) -> "Iterator[Event]":
    """What is there now. What comes meanwhile does not keep it from ending."""
    until = ledger.position()
    while page := ledger.events(job_id, types=types.stored, after=after):
        for event in page:
            if event.pos > until:
                return
            if types.has(event):
                yield event
        after = page[-1].pos


def _json_teller(dialect: str) -> "Callable[[Event, dict[str, Any]], None]":
    def tell(event: "Event", words: dict[str, Any]) -> None:
        click.echo(success({"event": event} if dialect == Dialect.HOLDFAST else {"dialect": dialect, "event": words}))

    return tell


def _teller(page: Page, dialect: str) -> "Callable[[Event, dict[str, Any]], None]":
    def tell(event: "Event", words: dict[str, Any]) -> None:
        what, why = in_words(event, words, dialect)
        head = f"{event.pos:>8}  {stamp(event.received_at)}  {what:<16}"
        text = f"{head}  job {event.job_id}, attempt {event.attempt}, by {event.actor}"
        page.line(f"{text}  {why}" if why else text, **STYLES.get(event.type, {}))

    return tell


def in_words(event: "Event", words: dict[str, Any], dialect: str) -> tuple[str, str]:
    """What happened and why, for people. In another dialect than Holdfast's own, both have the names of that dialect."""
    if dialect == Dialect.HOLDFAST:
        return event_words(event.type.value, event.reason, event.payload)
    return words["type"], words["reason"] or ""


@contextmanager
def _until_told() -> Iterator[None]:
    """Within, SIGINT, SIGTERM and a reader that has gone end what is done, in good order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    over = threading.Event()
    told = (threading.get_ident(), over)
    threading.Thread(target=_interrupt_when_unread, args=told, name="holdfast-reader", daemon=True).start()
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        forget_output()
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)


def _interrupt_when_unread(main_thread: int, over: threading.Event) -> None:
    """Without this, a tail whose reader has gone would wait for an event to find out. Once it is over, nobody is interrupted."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    poll.poll()
    if not over.is_set():
        signal.pthread_kill(main_thread, signal.SIGINT)
