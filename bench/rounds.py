"""Timing. The machine is never completely idle, so contenders take turns within one run and their medians are compared."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from bench.cpu import Cpu, Meter

T = TypeVar("T")


class Turn(NamedTuple):
    """One turn of a contender."""

    rate: float
    """Items a second."""
    cpu: Cpu


def timed(count: int, work: Callable[[], int | None]) -> float:
    """Items a second. Work that returns a count must have done all items."""
    began = time.perf_counter()
    done = work()
    seconds = time.perf_counter() - began
    assert done is None or done == count, f"{done} done of {count}"
    return count / seconds


def counted(count: int, meter: Meter, work: Callable[[], int | None]) -> Turn:
    """The same, with the processor time since the meter was made."""
    rate = timed(count, work)
    return Turn(rate, meter.spent(count))


def take_turns(rounds: int, *contenders: Callable[[int], T]) -> list[list[T]]:
    """The turns of each contender, which gets the round's number. The first contender of a round is the last of the next."""
    turns: list[list[T]] = [[] for _ in contenders]
    for number in range(rounds):
        for place in range(len(contenders)):
            turn = (place + number) % len(contenders)
            turns[turn].append(contenders[turn](number))
    return turns


def rates(turns: Sequence[Turn]) -> list[float]:
    return [turn.rate for turn in turns]


def cpus(turns: Sequence[Turn]) -> list[Cpu]:
    return [turn.cpu for turn in turns]


__all__ = ["Turn", "counted", "cpus", "median", "rates", "take_turns", "timed"]
