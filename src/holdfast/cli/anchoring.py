"""Where a command that seals keeps heads besides the ledger."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.values import duration
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.services.anchors import Anchor

SECRET_VARIABLE = "HOLDFAST_ANCHOR_SECRET"  # noqa: S105 - a name, not a secret


def anchor_options(function: Callable[..., Any]) -> Callable[..., Any]:
    path = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option(
            "--anchor-every",
            type=duration,
            default="60s",
            show_default=True,
            help="The shortest time between two anchored heads.",
        ),
        click.option("--anchor-private", is_flag=True, help="Allow a private address for --anchor-url."),
        click.option("--anchor-url", metavar="URL", help=f"POST heads to this address, signed with {SECRET_VARIABLE}."),
        click.option("--anchor", type=path, metavar="FILE", help="Append heads to this file."),
    ):
        function = option(function)
    return function


def anchors_of(ledger: "Ledger", file: Path | None, url: str | None, private: bool) -> "list[Anchor]":
    """What the options name."""
    from holdfast.services.anchors import FileAnchor, WebhookAnchor

    found: list[Anchor] = [] if file is None else [FileAnchor(file)]
    if url is not None:
        secret = os.environ.get(SECRET_VARIABLE)
        if not secret:
            raise ValidationError(f"--anchor-url needs {SECRET_VARIABLE}: whsec_ and base64", field="anchor_url")
        found.append(WebhookAnchor(ledger, url, secret=secret, allow_private=private))
    return found
