"""The outbox: how far each sink has got, and the events and jobs that it reads."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import Micros


class SinkPosition(msgspec.Struct, frozen=True):
    """Everything up to `pos` is done with. `failures` counts the tries at what comes next since the last one that went well."""

    name: str
    pos: int
    failures: int = 0
    retry_at: Micros | None = None
    """Nothing is tried before."""
    dead_at: Micros | None = None
    """Given up since then: nothing is tried until somebody revives it."""
    last_error: str | None = None
    updated_at: Micros = 0


class JobOrigin(NamedTuple):
    """What kind of job an event belongs to."""

    queue: str
    kind: str
    tier: str | None = None


class EndedJob(NamedTuple):
    """The times of a job that has ended, and the position and type of the event that ended it."""

    pos: int
    kind: str
    outcome: str
    created_at: Micros
    available_at: Micros
    claimed_at: Micros | None
    started_at: Micros | None
    finished_at: Micros | None


class OutboxSession(ABC):
    """The part of a transaction that the outbox needs."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def stamp(self) -> Micros | None: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    def sinks(self) -> list[SinkPosition]:
        return [SinkPosition(*row) for row in self.rows("sinks")]

    def find_sink(self, name: str) -> SinkPosition | None:
        """For a writing transaction only: nobody else can change the place before it ends."""
        rows = self.rows("find_sink", name=name)
        return SinkPosition(*rows[0]) if rows else None

    def add_sink(self, name: str, pos: int) -> None:
        """A sink that is there already stays where it is."""
        self.rows("add_sink", name=name, pos=pos, now_at=self.stamp())

    def save_sink(self, place: SinkPosition, from_pos: int) -> bool:
        """False where the sink is not at `from_pos` any more: nothing is changed then."""
        values = msgspec.structs.asdict(place)
        del values["updated_at"]
        return bool(self.rows("save_sink", from_pos=from_pos, now_at=self.stamp(), **values))

    def drop_sink(self, name: str) -> bool:
        return bool(self.rows("drop_sink", name=name))

    def last_pos(self) -> int:
        """The newest position that was drawn; whether its event is committed is another matter."""
        rows = self.rows("last_pos")
        return int(rows[0][0]) if rows else 0

    def event_types(self, after: int, until: int) -> dict[str, int]:
        """How many events of each type there are between two positions. A stall for a transient error counts as `retried`."""
        return dict(self.rows("event_types", after=after, until=until))

    def ended_jobs(self, after: int, until: int, limit: int) -> list[EndedJob]:
        """Jobs that ended between two positions, in the order of their ends."""
        return [EndedJob(*row) for row in self.rows("ended_jobs", after=after, until=until, limit=limit)]

    def origins(self, ids: Iterable[int]) -> dict[int, JobOrigin]:
        return {id_: JobOrigin(*what) for id_, *what in self.rows("origins", ids=self._list(sorted(set(ids))))}
