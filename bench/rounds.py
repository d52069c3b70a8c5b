"""Timing. The machine is never completely idle, so contenders take turns within one run and their medians are compared."""

import time
from collections.abc import Callable
from statistics import median


def timed(count: int, work: Callable[[], int | None]) -> float:
    """Items a second. Work that returns a count must have done all items."""
    began = time.perf_counter()
    done = work()
    seconds = time.perf_counter() - began
    assert done is None or done == count, f"{done} done of {count}"
    return count / seconds


def take_turns(rounds: int, *contenders: Callable[[int], float]) -> list[list[float]]:
    """The rates of each contender, which gets the round's number. The first contender of a round is the last of the next."""
    rates: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        for place in range(len(contenders)):
            turn = (place + number) % len(contenders)
            rates[turn].append(contenders[turn](number))
    return rates


__all__ = ["median", "take_turns", "timed"]
