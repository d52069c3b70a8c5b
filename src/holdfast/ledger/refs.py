"""Names that the items of one `enqueue_many` have for each other, so that a job can depend on one that has no id yet."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.waiting import ON_FAILURE_DEFAULT
from holdfast.errors import ValidationError


class Refs:
    """What was said by name in one call."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._wanted: dict[int, list[str]] = {}

    def take(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """The item without its own name, and depending on ids alone."""
        rest = dict(item)
        ref = rest.pop("ref", None)
        if ref is not None:
            if limits.check_name("ref", ref) in self._places:
                raise ValidationError(f"two items have the ref {ref!r}", field="ref")
            self._places[ref] = place
        given = rest.get("depends_on")
        if isinstance(given, list | tuple | set | frozenset):
            self._wanted[place] = [limits.check_name("depends_on", one) for one in given if isinstance(one, str)]
            rest["depends_on"] = [one for one in given if not isinstance(one, str)]
            if self._wanted[place] and rest.get("on_dependency_failure") is None:
                rest["on_dependency_failure"] = ON_FAILURE_DEFAULT
        return rest

    def link(self, commands: Sequence[c.Enqueue]) -> list[c.Enqueue]:
        """The commands as those of one call, each with the places of those it depends on."""
        linked = [command if isinstance(command, c.EnqueueLinked) else _linked(command) for command in commands]
        for place, names in self._wanted.items():
            after = tuple(sorted({self._place(place, name) for name in names}))
            limits.check_count("depends_on", len(after) + len(linked[place].depends_on), limits.DEPENDENCIES_MAX)
            linked[place] = msgspec.structs.replace(linked[place], after=after)
        in_order(linked)
        return list(linked)

    def _place(self, place: int, name: str) -> int:
        if name not in self._places:
            raise ValidationError(f"no item has the ref {name!r}", field="depends_on", item=place)
        return self._places[name]


def _linked(command: c.Enqueue) -> c.EnqueueLinked:
    return c.EnqueueLinked(**{name: getattr(command, name) for name in c.Enqueue.__struct_fields__})


def in_order(commands: Sequence[c.EnqueueLinked]) -> list[int]:
    """Places of a call such that each comes after those it depends on. A circle is refused."""
    missing = [len(command.after) for command in commands]
    following: dict[int, list[int]] = {}
    for place, command in enumerate(commands):
        for other in command.after:
            following.setdefault(other, []).append(place)
    order = [place for place, count in enumerate(missing) if count == 0]
    for done in order:
        for place in following.get(done, ()):
            missing[place] -= 1
            if missing[place] == 0:
                order.append(place)
    if len(order) < len(commands):
        stuck = next(place for place, count in enumerate(missing) if count)
        raise ValidationError("these items depend on each other in a circle", field="depends_on", item=stuck)
    return order
