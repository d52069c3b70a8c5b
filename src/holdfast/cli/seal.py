"""`holdfast seal`: hash everything that happens into one tree, and sign its heads."""

import logging
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.anchoring import anchor_options, anchors_of
from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.progress import Progress
from holdfast.cli.values import duration
from holdfast.core.limits import SEAL_EVENTS_MAX
from holdfast.errors import LeaseConflictError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.services.seal import Sealer

log = logging.getLogger("holdfast.seal")


@click.command()
@click.option("--once", is_flag=True, help="Seal what is there now, and exit.")
@click.option("--every", type=duration, default="1s", show_default=True, help="How long an event may wait for a head.")
@click.option(
    "--every-events",
    type=click.IntRange(1, SEAL_EVENTS_MAX),
    default=1_000,
    show_default=True,
    help="How many events may wait for a head.",
)
@anchor_options
@asks_a_ledger
def seal(
    ledger: "Ledger",
    *,
    once: bool,
    every: timedelta,
    every_events: int,
    anchor: Path | None,
    anchor_url: str | None,
    anchor_private: bool,
    anchor_every: timedelta,
) -> Answer:
    """Seal the event log, until SIGTERM or SIGINT.

    It hashes all events into one tree, and signs the heads of the tree.

    Needs an enrolled key of a server. Others may run it too: one works, the rest stand by. Ends with 1 where what is there is not
    what was signed.

    \b
    Example:
      holdfast seal --once --key main.key --anchor heads.txt
    """
    from holdfast.services.seal import Sealer

    anchors = anchors_of(ledger, anchor, anchor_url, anchor_private)
    with Sealer(ledger, every=every, every_events=every_events, anchors=anchors, anchor_every=anchor_every) as sealer:
        if not once:
            keys = [key.key_id for key in ledger.ring if key.role == "server"]
            _run(sealer, {"ledger": ledger.id, "keys": keys, "anchors": [anchor.name for anchor in anchors]})
        elif not _seal_all(sealer):
            raise LeaseConflictError("another sealer is at work on this ledger")
    head = ledger.head()

    def show(page: Page) -> None:
        page.line("Nothing was sealed." if head is None else f"Sealed up to position {head.pos}: {head.size} leaves.")

    return Answer({"head": None if head is None else {"size": head.size, "pos": head.pos, "note": head.note}}, show)


def _seal_all(sealer: "Sealer") -> bool:
    """Whether it was this one's turn."""
    with Progress("leaves sealed") as progress:
        return sealer.seal_all(progress) is not None


def _run(sealer: "Sealer", facts: dict[str, Any]) -> None:
    from holdfast.telemetry import logs
    from holdfast.worker.signals import calling

    logs.configure(json=not sys.stderr.isatty(), level="INFO")
    log.info("sealing", extra=facts)
    stop = threading.Event()
    with calling(stop.set):
        sealer.run(stop)
