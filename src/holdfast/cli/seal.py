"""`holdfast seal`: seal the event log, and anchor its heads."""

import logging
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, with_ledger
from holdfast.cli.output import Page, ProgressLine
from holdfast.cli.values import duration
from holdfast.core.limits import SEAL_EVENTS_MAX
from holdfast.errors import LeaseConflictError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.services.sealer import Sealer


log = logging.getLogger("holdfast.seal")


@click.command()
@click.option("--once", is_flag=True, help="Seal the events that exist now, and exit.")
@click.option("--every", type=duration, default="1s", show_default=True, help="How long an event may wait for a head.")
@click.option(
    "--every-events",
    type=click.IntRange(1, SEAL_EVENTS_MAX),
    default=1_000,
    show_default=True,
    help="How many events may wait for a head.",
)
@click.option("--anchor", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Append heads to this file.")
@click.option(
    "--anchor-every", type=duration, default="60s", show_default=True, help="The shortest time between two anchored heads."
)
@with_ledger
def seal(
    ledger: "Ledger",
    *,
    once: bool,
    every: timedelta,
    every_events: int,
    anchor: Path | None,
    anchor_every: timedelta,
) -> CommandResult:
    """Seal the event log, until SIGTERM or SIGINT.

    It hashes all events into one tree, and signs the heads of the tree.

    It needs an enrolled server key. Several sealers may run: one works, the others stand by. The exit code is 1 if the log is
    not what was signed.

    \b
    Example:
      holdfast seal --once --key main.key --anchor heads.txt
    """
    from holdfast.services.anchors import FileAnchor
    from holdfast.services.sealer import Sealer

    anchors = [] if anchor is None else [FileAnchor(anchor)]
    with Sealer(ledger, every=every, every_events=every_events, anchors=anchors, anchor_every=anchor_every) as sealer:
        if not once:
            keys = [key.key_id for key in ledger.ring if key.role == "server"]
            _run(sealer, {"ledger": ledger.id, "keys": keys, "anchors": [anchor.name for anchor in anchors]})
        elif not _seal_all(sealer):
            raise LeaseConflictError("another sealer works on this ledger")
    head = ledger.head()

    def show(page: Page) -> None:
        page.line("Nothing was sealed." if head is None else f"Sealed up to position {head.pos}: {head.size} leaves.")

    return CommandResult({"head": None if head is None else {"size": head.size, "pos": head.pos, "note": head.note}}, show)


def _seal_all(sealer: "Sealer") -> bool:
    """Seal all events. Return False if another sealer holds the ledger."""
    with ProgressLine("leaves sealed") as progress:
        return sealer.seal_all(progress) is not None


def _run(sealer: "Sealer", facts: dict[str, Any]) -> None:
    from holdfast.keeping.signals import stop_on_signals
    from holdfast.telemetry import logs

    logs.configure(json=not sys.stderr.isatty(), level="INFO")
    log.info("sealing", extra=facts)
    stop = threading.Event()
    with stop_on_signals(lambda _: stop.set()):
        sealer.run(stop)
