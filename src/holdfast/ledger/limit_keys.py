"""The keys of the limits that new jobs draw on: the values of their arguments that the limits are counted by.

Schedules and follow-up jobs of groups are stored without keys. Their jobs get them when they are made, from the limits of that
time. A limit that was removed since then does not stop them: it limits nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import limits, payloads
from holdfast.core.flow import LimitBody, key_of
from holdfast.core.model import Draw
from holdfast.errors import LimitExceeded, NotFound
from holdfast.store.base import Store
from holdfast.store.limits import decode_limit
from holdfast.store.session import Session

KNOWN_SECONDS = 1.0
"""How long a process takes the limits that it has read for the current ones."""


class LimitKeys:
    """Adds keys to commands. It reads the limits at most once a second, unless one is unknown."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._known: dict[str, LimitBody] = {}
        self._read_at = float("-inf")

    def forget(self) -> None:
        """Read the limits again before the next use."""
        self._read_at = float("-inf")

    def add(self, commands: Sequence[c.Enqueue]) -> list[c.Enqueue]:
        """Return the commands with the keys of their limits. Refuse a job that could never start, or that has no key."""
        names = {draw.limit for one in commands if one.flow is not None for draw in one.flow.limits}
        if not names:
            return list(commands)
        known = self._limits(names)
        return [_keyed(one, known) if one.flow is not None and one.flow.limits else one for one in commands]

    def _limits(self, names: set[str]) -> dict[str, LimitBody]:
        if not names <= self._known.keys() or self._monotonic() > self._read_at + KNOWN_SECONDS:
            rows = self._store.read_statement(lambda session: session.limit_rows("", limits.LIMITS_MAX))
            self._known = {row.name: decode_limit(row.body) for row in rows}
            self._read_at = self._monotonic()
        if unknown := names - self._known.keys():
            raise unknown_limit(min(unknown), field="limits")
        return self._known


def unknown_limit(name: str, **context: str) -> NotFound:
    """Return the error for a limit that does not exist."""
    return NotFound(f"there is no limit {name}", action=f"Make it: {make_limit(name)}.", name=name, **context)


def make_limit(name: str) -> str:
    """Return an example of the command that makes a limit."""
    from holdfast.core.explain.formatting import quote_argument

    return f"holdfast limit set {quote_argument(name)} --concurrent 10 (or --rate 600/1m)"


def add_keys(session: Session, command: c.Enqueue) -> tuple[c.Enqueue, list[str]]:
    """Return the command of a stored job with the keys of its limits, and which of these limits do not exist."""
    if command.flow is None or not command.flow.limits:
        return command, []
    found = {draw.limit: session.limit_body(draw.limit) for draw in command.flow.limits}
    known = {name: body for name, body in found.items() if body is not None}
    return _keyed(command, known), sorted(found.keys() - known.keys())


def _keyed(command: c.Enqueue, known: Mapping[str, LimitBody]) -> c.Enqueue:
    assert command.flow is not None
    body = payloads.decode(payloads.EnqueuedPayload, command.payload)
    flow = replace(
        command.flow, limits=tuple(_with_key(draw, known.get(draw.limit), bytes(body.args)) for draw in command.flow.limits)
    )
    return command if flow == command.flow else replace(command, flow=flow, payload=replace(body, flow=flow).encode())


def _with_key(draw: Draw, body: LimitBody | None, args: bytes) -> Draw:
    if body is not None and body.refuses(draw.units):
        raise LimitExceeded(
            f"the job draws {draw.units} units of the limit {draw.limit}, which never has so many",
            field="limits",
            actual=draw.units,
            limit_name=draw.limit,
        )
    key = "" if body is None or body.by is None else key_of(body.by, args, draw.limit)
    return draw if key == draw.key else replace(draw, key=key)
