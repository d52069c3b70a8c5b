"""`holdfast events`: what happened to a job, and events that somebody else has signed."""

from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from holdfast.cli.agents import json_option
from holdfast.cli.exporting import export
from holdfast.cli.frame import Answer, Noun, asks_a_ledger, reads_a_ledger
from holdfast.cli.tail import in_words, tail
from holdfast.cli.values import JOB_ID, dialect_option, stamp
from holdfast.core.limits import ENVELOPE_BYTES_MAX
from holdfast.core.vocabulary import Dialect

if TYPE_CHECKING:
    from holdfast.cli.page import Page
    from holdfast.ledger import Event, Ledger

PAGE = 1_000


@click.group(cls=Noun)
def events() -> None:
    """Show, follow and export events, and record signed ones.

    \b
    Try:
      holdfast events tail --once
    """


@events.command()
@click.argument("job_id", type=JOB_ID, metavar="JOB")
@dialect_option
@reads_a_ledger
def get(ledger: "Ledger", *, job_id: int, dialect: str) -> Answer:
    """Show the events of one job, and which keys signed them.

    \b
    Example:
      holdfast events get 12
      holdfast events get 12 --dialect jobs --json
    """
    ledger.get(job_id)
    found = _all(ledger, job_id)
    told = ledger.in_dialect(found, dialect)
    book = ledger.keys() if any(event.key_id for event in found) else []
    names = {record.key_id: record.name for record in book}
    shown = [in_words(event, words, dialect) for event, words in zip(found, told, strict=True)]
    rows = [
        (
            event.rev,
            stamp(event.received_at),
            what,
            event.actor,
            event.attempt,
            why,
            "" if event.key_id is None else f"{names.get(event.key_id, '?')} {event.key_id}",
        )
        for event, (what, why) in zip(found, shown, strict=True)
    ]

    def tell(page: "Page") -> None:
        page.table(("rev", "received", "event", "by", "attempt", "reason", "signed by"), rows)

    return Answer({"events": found} if dialect == Dialect.HOLDFAST else {"dialect": dialect, "events": told}, tell)


def _all(ledger: "Ledger", job_id: int) -> "list[Event]":
    found: list[Any] = []
    while page := ledger.events(job_id, after=found[-1].pos if found else 0, limit=PAGE):
        found += page
    return found


@events.command()
@click.argument("file", type=click.File("rb"), metavar="FILE")
@json_option("--content", "The content whose hash is signed: a result, a beat or an error.")
@asks_a_ledger
def append(ledger: "Ledger", *, file: BinaryIO, content: msgspec.Raw | None) -> Answer:
    """Record a signed event from a file, or from - (stdin).

    It is a statement in Holdfast's own shape or in a robot's, with its keyId and signature. The newest one of a job may be sent
    again.

    \b
    Example:
      holdfast events append beat.json
      holdfast events append done.json --content '{"rooms": 2}'
    """
    given = {} if content is None else {"content": msgspec.json.decode(content)}
    event = ledger.append(file.read(ENVELOPE_BYTES_MAX + 1), **given)
    told = f"Recorded: {event.type.value} of job {event.job_id}, rev {event.rev}, signed by {event.key_id}."
    return Answer({"event": event}, lambda page: page.line(told))


events.add_command(export)
events.add_command(tail)
