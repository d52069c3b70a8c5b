"""The outbox: the position of each sink, and the events and jobs that it reads."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from holdfast.core.limits import EVENTS_COUNTED_MAX
from holdfast.core.model import Micros
from holdfast.store.statement_session import StatementSession


class SinkPosition(msgspec.Struct, frozen=True):
    """A sink, and the position up to which it has handled all events. `failures` counts its failures since the last success."""

    name: str
    pos: int
    failures: int = 0
    retry_at: Micros | None = None
    """No delivery is tried before this time."""
    dead_at: Micros | None = None
    """When deliveries were given up. None is tried until an operator revives the sink."""
    last_error: str | None = None
    updated_at: Micros = 0
    of_heads: bool = False
    """Whether it gets the heads of the sealed log instead of the events. `pos` is then the size of the last one."""


class JobOrigin(NamedTuple):
    """Queue, kind and tier of the job that an event belongs to."""

    queue: str
    kind: str
    tier: str | None = None


class SqlSinks(StatementSession):
    """The part of a transaction that the outbox uses."""

    def sinks(self) -> list[SinkPosition]:
        return self.records(SinkPosition, "sinks")

    def find_sink(self, name: str) -> SinkPosition | None:
        """Lock and return the position of a sink. Only for a writing transaction."""
        return self.record(SinkPosition, "find_sink", name=name)

    def add_sink(self, name: str, pos: int, *, of_heads: bool) -> None:
        """Add a sink. An existing one keeps its position."""
        self.rows("add_sink", name=name, pos=pos, of_heads=of_heads, now_at=self.stamp())

    def save_sink(self, sink: SinkPosition, from_pos: int) -> bool:
        """Save the position of a sink. Return False and change nothing if it is no longer at `from_pos`."""
        values = msgspec.structs.asdict(sink)
        del values["updated_at"], values["of_heads"]
        return bool(self.rows("save_sink", from_pos=from_pos, now_at=self.stamp(), **values))

    def drop_sink(self, name: str) -> bool:
        return bool(self.rows("drop_sink", name=name))

    def last_pos(self) -> int:
        """Return the newest position that was drawn. Its event may not be committed yet."""
        return self.value("last_pos") or 0

    def events_after(self, pos: int) -> int:
        """Count the events after a position. The count stops at a limit."""
        [(rows, batched)] = self.rows("events_after", pos=pos, limit=EVENTS_COUNTED_MAX)
        return min(int(rows) + int(batched), EVENTS_COUNTED_MAX)

    def origins(self, ids: Iterable[int]) -> dict[int, JobOrigin]:
        return {
            id_: JobOrigin(queue, kind, tier) for id_, queue, kind, tier in self.rows("origins", ids=self._list(sorted(set(ids))))
        }
