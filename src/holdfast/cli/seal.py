"""`holdfast seal`: hash everything that happens into one tree, and sign its heads."""

import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.values import duration
from holdfast.core.limits import SEAL_EVENTS_MAX
from holdfast.errors import LeaseConflictError, ValidationError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.services.anchors import Anchor
    from holdfast.services.seal import Sealer

SECRET_VARIABLE = "HOLDFAST_ANCHOR_SECRET"  # noqa: S105 - a name, not a secret


@click.command()
@click.option("--once", is_flag=True, help="Seal what is there, and end.")
@click.option("--every", type=duration, default="1s", show_default=True, help="How long an event may wait for a head.")
@click.option("--every-events", type=click.IntRange(1, SEAL_EVENTS_MAX), default=1_000, show_default=True, help="How many may.")
@click.option("--anchor", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Append heads to this file.")
@click.option("--anchor-url", metavar="URL", help=f"POST heads there, signed with {SECRET_VARIABLE}.")
@click.option("--anchor-private", is_flag=True, help="Let that be an address that is not public.")
@click.option("--anchor-every", type=duration, default="60s", show_default=True, help="How often at most.")
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
    """Hash everything that happens into one tree, and sign its heads, until SIGTERM or SIGINT.

    Needs an enrolled key of a server. Others may run it too: one works, the rest stand by. Ends with 1 where what is there is not
    what was signed.
    """
    from holdfast.services.seal import Sealer

    anchors = _anchors(ledger, anchor, anchor_url, anchor_private)
    with Sealer(ledger, every=every, every_events=every_events, anchors=anchors, anchor_every=anchor_every) as sealer:
        if not once:
            _run(sealer)
        elif sealer.seal_all() is None:
            raise LeaseConflictError("another sealer is at work on this ledger")
    head = ledger.head()

    def show(page: Page) -> None:
        page.line("Nothing was sealed." if head is None else f"Sealed up to position {head.pos}: {head.size} leaves.")

    return Answer({"head": None if head is None else {"size": head.size, "pos": head.pos, "note": head.note}}, show)


def _anchors(ledger: "Ledger", file: Path | None, url: str | None, private: bool) -> "list[Anchor]":
    from holdfast.services.anchors import FileAnchor, WebhookAnchor

    found: list[Anchor] = [] if file is None else [FileAnchor(file)]
    if url is not None:
        secret = os.environ.get(SECRET_VARIABLE)
        if not secret:
            raise ValidationError(f"--anchor-url needs {SECRET_VARIABLE}: whsec_ and base64", field="anchor_url")
        found.append(WebhookAnchor(ledger, url, secret=secret, allow_private=private))
    return found


def _run(sealer: "Sealer") -> None:
    from holdfast.telemetry import logs
    from holdfast.worker.signals import calling

    logs.configure(json=not sys.stderr.isatty(), level="INFO")
    stop = threading.Event()
    with calling(stop.set):
        sealer.run(stop)
