"""What is measured of every contender, and how they take turns."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from bench.peers.base import Absent, Peer, Setting
from bench.peers.ground import Ground
from bench.rounds import Turn, take_turns
from bench.work import batches

T = TypeVar("T")


class Sizes(NamedTuple):
    jobs: int = 60_000
    rounds: int = 5
    lone: int = 200
    """Jobs whose way from the enqueue to the handler is timed."""
    lone_at_once: int = 50
    """After so many of them it is the next contender's turn."""
    recovery_seconds: float = 200.0
    """How long a killed worker's job is waited for; zero if it is not."""


QUICK = Sizes(jobs=2_000, rounds=1, lone=5, recovery_seconds=0.0)


@dataclass
class Taken:
    """The figures of one contender, and why one is missing."""

    peer: Peer
    drain: list[Turn] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    recovery_seconds: float | None = None
    recovery_tried: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.peer.name} ({self.peer.storage}, {self.peer.config})"


def take(ground: Ground, peers: Sequence[Peer], sizes: Sizes) -> list[Taken]:
    """Measure all figures. The first contender of a round is the last of the next. Failures are reported and left out."""
    taken = [Taken(peer) for peer in peers]
    take_turns(sizes.rounds, *(partial(_drain, ground, one, sizes) for one in taken))
    sets = list(batches(sizes.lone, sizes.lone_at_once))
    take_turns(len(sets), *(partial(_latency, ground, one, sets) for one in taken))
    if sizes.recovery_seconds:
        # In parallel: they only wait, some of them for minutes.
        with ThreadPoolExecutor(max(1, len(taken))) as pool:
            list(pool.map(lambda one: _recovery(ground, one, sizes), taken))
    return taken


def amount(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _drain(ground: Ground, one: Taken, sizes: Sizes, _: int) -> None:
    turn = _measured(ground, one, "drain", lambda setting: one.peer.drain(setting, sizes.jobs))
    if turn is not None:
        one.drain.append(turn)
        _tell(f"{one.title}: {amount(turn.rate)} jobs/s, µs of processor time: {turn.cpu}")


def _latency(ground: Ground, one: Taken, sets: Sequence[int], number: int) -> None:
    found = _measured(ground, one, "latency", lambda setting: one.peer.latency(setting, sets[number]))
    if found:
        one.latency_ms += found
        _tell(f"{one.title}: {min(found):,.1f}–{max(found):,.1f} ms")


def _recovery(ground: Ground, one: Taken, sizes: Sizes) -> None:
    """Of contenders with default settings: tuning may easily spoil the recovery time."""
    if one.peer.config != "default":
        return
    one.recovery_seconds = _measured(ground, one, "recovery", lambda setting: one.peer.recovery(setting, sizes.recovery_seconds))
    one.recovery_tried = not one.missing.keys() & {"absent", "recovery"}


def _measured(ground: Ground, one: Taken, figure: str, work: Callable[[Setting], T]) -> T | None:
    """Return None and keep the reason if it failed. A failure of one contender does not affect the others."""
    if one.missing.keys() & {"absent", figure}:
        return None
    try:
        with ground.setting(one.peer) as setting:
            return work(setting)
    except Absent as error:
        one.missing["absent"] = str(error)
    except Exception as error:  # noqa: BLE001 - an error of a contender does not end the run
        one.missing[figure] = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    _tell(f"{one.title}: no {figure}: {list(one.missing.values())[-1]}")
    return None


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
