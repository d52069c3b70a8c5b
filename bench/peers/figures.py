"""What is measured of every contender, and how they take turns."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from bench.peers.base import Absent, Peer, Setting
from bench.peers.ground import Ground

T = TypeVar("T")


class Sizes(NamedTuple):
    jobs: int = 20_000
    rounds: int = 3
    lone: int = 50
    """Jobs whose way from the enqueue to the handler is timed."""
    recovery_seconds: float = 200.0
    """How long a killed worker's job is waited for; zero if it is not."""


QUICK = Sizes(jobs=2_000, rounds=1, lone=5, recovery_seconds=0.0)


@dataclass
class Taken:
    """The figures of one contender, and why one is missing."""

    peer: Peer
    drain: list[float] = field(default_factory=list)
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
    for number in range(sizes.rounds):
        turn = number % max(1, len(taken))
        for one in taken[turn:] + taken[:turn]:
            _drain(ground, one, sizes)
    for one in taken:
        _latency(ground, one, sizes)
    if sizes.recovery_seconds:
        # In parallel: they only wait, some of them for minutes.
        with ThreadPoolExecutor(max(1, len(taken))) as pool:
            list(pool.map(lambda one: _recovery(ground, one, sizes), taken))
    return taken


def amount(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _drain(ground: Ground, one: Taken, sizes: Sizes) -> None:
    rate = _measured(ground, one, "drain", lambda setting: one.peer.drain(setting, sizes.jobs))
    if rate is not None:
        one.drain.append(rate)
        _tell(f"{one.title}: {amount(rate)} jobs/s")


def _latency(ground: Ground, one: Taken, sizes: Sizes) -> None:
    found = _measured(ground, one, "latency", lambda setting: one.peer.latency(setting, sizes.lone))
    if found:
        one.latency_ms = found
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
