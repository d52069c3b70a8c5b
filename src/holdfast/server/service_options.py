"""The options of the services that run inside a server, and the sinks that they name."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast.services.sinks import Sink

ServiceName = Literal["sweep", "prune", "history", "relay", "seal"]
SERVICES: tuple[ServiceName, ...] = ("sweep", "prune", "history", "relay", "seal")


class SinkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A webhook to which the relay delivers events. The fields are those of `WebhookSink`."""

    name: str
    url: str
    secret_file: Path
    """A file with one secret or several, each whsec_ and base64. Only its owner may be able to read it."""
    timeout: float | str = 10
    allow_private: bool = False
    headers: dict[str, str] = {}
    types: list[str] | None = None
    messages: list[str] | None = None
    queues: list[str] | None = None
    kinds: list[str] | None = None
    start: Literal["now", "beginning"] = "now"
    include_payload: bool = False
    dialect: str = "holdfast"
    attempts_max: int | None = None


class SealOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the sealer works. The fields are the options of `holdfast seal`."""

    every: float | str = "1s"
    every_events: int = 1_000
    anchor: Path | None = None
    anchor_every: float | str = "60s"


def make_sinks(given: tuple[SinkOptions, ...], read_secret: Callable[[str, Path], str]) -> "list[Sink]":
    """Return the sinks that the options name. Raise ValidationError if one of them is wrong."""
    if not given:
        return []
    from holdfast.services.sinks import WebhookSink

    sinks: list[Sink] = []
    for number, one in enumerate(given):
        options: dict[str, Any] = msgspec.structs.asdict(one)
        secret = read_secret(f"sinks[{number}].secret_file", options.pop("secret_file"))
        sinks.append(WebhookSink(options.pop("url"), secret=secret, **{k: v for k, v in options.items() if v is not None}))
    return sinks
