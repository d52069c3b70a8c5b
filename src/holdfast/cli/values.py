"""Parse values that users type, and format values for output."""

import os
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.core import policy as policies
from holdfast.core import vocabulary
from holdfast.core.formatting import RETRIED, is_retry
from holdfast.core.limits import JOB_ID_MAX, TYPED_BYTES_MAX
from holdfast.core.model import EventType, FailureStage, ReasonCode
from holdfast.core.text import iso_format
from holdfast.core.vocabulary import Dialect
from holdfast.errors import HoldfastError, ValidationError
from holdfast.files.regular import read_regular

if TYPE_CHECKING:
    from holdfast.ledger import Event, Ledger

_NUMBER = re.compile(r"\d+(\.\d+)?")
_AGO_MS_MAX = 3_650 * policies.DAY_MS


class WholeNumber(click.IntRange):
    """A whole number in a range. The error message for other values is plainer than click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            int(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r:.80} is not a whole number", param, ctx)
        return int(super().convert(value, param, ctx))


class JobId(click.IntRange):
    """The id of a job. The error message for other values leaves out the range, which click would print."""

    name = "job id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            int(value)
        except (TypeError, ValueError):
            hint = "; give the option again for each" if param is not None and param.multiple and "," in str(value) else ""
            self.fail(f"{value!r:.80} is not a valid job id, a whole number{hint}", param, ctx)
        return int(super().convert(value, param, ctx))


JOB_ID = JobId(1, JOB_ID_MAX)


class EventName(click.Choice[str]):
    """The type of an event as it is shown, where an ordinary retry is `retried`, or its name in a dialect.

    The value is a tuple of types to show, because a dialect has one name for both stalls and retries.
    """

    name = "event type"

    def __init__(self) -> None:
        super().__init__([*(kind.value for kind in EventType), RETRIED])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value not in self.choices:
            try:
                found = vocabulary.event_type(value).value
            except ValueError:
                pass
            else:
                return (found, RETRIED) if found == EventType.STALLED else (found,)
        return (super().convert(value, param, ctx),)


type_option = click.option(
    "--type",
    "types",
    multiple=True,
    type=EventName(),
    help="Only events of these types: retried is a retry, stalled any other stall. Names of dialects work too.",
)


class EventTypes(NamedTuple):
    """The types of events to show; empty for all."""

    shown: frozenset[str]

    @classmethod
    def of(cls, given: Iterable[Iterable[str]]) -> "EventTypes":
        return cls(frozenset(name for names in given for name in names))

    @property
    def stored(self) -> list[str] | None:
        """The types under which the ledger stores them; None for all."""
        return sorted({EventType.STALLED.value if name == RETRIED else name for name in self.shown}) or None

    def has(self, event: "Event") -> bool:
        kind = RETRIED if is_retry(event.type, event.reason) else event.type.value
        return not self.shown or kind in self.shown


dialect_option = click.option(
    "--dialect",
    type=click.Choice([dialect.value for dialect in Dialect]),
    default=Dialect.HOLDFAST.value,
    help="Names and shapes of the events. [default: holdfast]",
)


def duration(value: str) -> timedelta:
    """Parse a duration: `30`, `30s`, `500ms`, `5m`, `1h`."""
    try:
        ms = policies.duration_ms("it", float(value) if _NUMBER.fullmatch(value) else value, 0, _AGO_MS_MAX)
    except HoldfastError:
        raise click.BadParameter(f"{value!r:.80} is not a duration such as 30s, 5m or 1h") from None
    return timedelta(milliseconds=ms)


def duration_or_never(value: str) -> timedelta | str:
    return value if value == "never" else duration(value)


def _time(value: str) -> datetime:
    """Parse a time: `2026-03-01`, `2026-03-01T12:00:00+01:00`. The default zone is UTC. Raise ValueError for another text."""
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def when(value: str) -> timedelta | datetime:
    """Parse a duration before now, such as `2h`, or a time."""
    try:
        return _time(value)
    except ValueError:
        try:
            return timedelta(milliseconds=policies.duration_ms("it", value, 0, _AGO_MS_MAX))
        except HoldfastError:
            message = f"{value!r:.80} is neither a duration such as 2h nor a time such as 2026-03-01T12:00"
            raise click.BadParameter(message) from None


def point(value: str) -> datetime:
    """Parse a time."""
    try:
        return _time(value)
    except ValueError:
        raise click.BadParameter(f"{value!r:.80} is not a time such as 2026-03-01T12:00") from None


def schedule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--delay` and `--at`, the time before which a job does not run."""
    at_words = "Run the job no sooner than at: 2026-03-01T12:00 (UTC unless an offset is given)."
    function = click.option("--at", "available_at", type=point, metavar="TIME", help=at_words)(function)
    return click.option("--delay", type=duration, help="Run the job no sooner than after this time: 30s, 5m.")(function)


def queues(value: str) -> list[str] | dict[str, int]:
    """Parse queues: `a,b` in strict order, or `a=3,b=1` by weight."""
    parts = [part.strip() for part in value.split(",")]
    pairs = [part.rpartition("=") if "=" in part else (part, "", "") for part in parts]
    names = [name for name, _, _ in pairs]
    if not all(names):
        raise click.BadParameter(f"{value!r:.200}: queues are named as in a,b or a=3,b=1")
    if len(set(names)) != len(names):
        raise click.BadParameter(f"{value!r:.200}: each queue may be named once")
    if not any(equals for _, equals, _ in pairs):
        return names
    if not all(weight.isascii() and weight.isdigit() for _, _, weight in pairs):
        raise click.BadParameter(f"{value!r:.200}: either all queues have a weight, as in a=3,b=1, or none has")
    return {name: int(weight) for name, _, weight in pairs}


def read_argument(value: str) -> bytes:
    """Return the argument itself, the contents of a @FILE, which may be a pipe, or standard input for -."""
    try:
        if value == "-":
            return sys.stdin.buffer.read(TYPED_BYTES_MAX + 1)
        return read_regular(value[1:], TYPED_BYTES_MAX, pipes=True) if value.startswith("@") else os.fsencode(value)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a valid file name"
        raise ValidationError(f"{value[1:]!r:.80} cannot be read: {reason}") from None


def resolve_since(ledger: "Ledger", since: timedelta | datetime | None) -> datetime | None:
    """Return the time. Subtract a duration from the ledger's time."""
    return ledger.now() - since if isinstance(since, timedelta) else since


def format_time(at: datetime | None) -> str:
    return "–" if at is None else iso_format(at, "milliseconds")


def reason_code_option(words: str, *, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--reason-code`, with this help text."""
    codes = [code.value for code in ReasonCode]
    return click.option("--reason-code", type=click.Choice(codes), required=required, help=words)


def failure_stage_option(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--stage`, the stage in which an attempt failed, with this help text."""
    return click.option("--stage", "failure_stage", type=click.Choice([stage.value for stage in FailureStage]), help=words)
