"""`python -m bench.versions TREE [TREE…]`: what a job costs in other checkouts of Holdfast, beside this one.

Each checkout runs in processes of its own, on a ledger of its own. They take turns of a fraction of a second, so that a machine
that gets slower does so for all of them; the medians of the ratios of neighbouring turns are compared.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

from bench.lone import BATCH
from tools.pgserver import PostgresServer

HERE = Path(__file__).parent.parent
TURN_SECONDS = 0.5
TURNS = 40


class Turn(NamedTuple):
    """One turn of all processes of a checkout."""

    rate: float
    """Jobs a second."""
    cpu_us: float
    """Processor time of the clients for each job."""


class Contender:
    """Processes that enqueue, claim and complete jobs, one after another or in batches, each in a queue of its own."""

    def __init__(self, tree: Path, url: str, processes: int, size: int) -> None:
        self.name = str(tree)
        self.turns: list[Turn] = []
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        self._processes = [
            subprocess.Popen(
                [sys.executable, HERE / "bench" / "lone.py", url, f"queue-{number}", str(size)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]

    def turn(self, seconds: float) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        done = [_numbers(process) for process in self._processes]
        jobs = sum(found[0] for found in done)
        self.turns.append(Turn(jobs / seconds, sum(found[1] for found in done) / jobs * 1e6))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.communicate()


def _numbers(process: "subprocess.Popen[str]") -> tuple[float, float]:
    assert process.stdout is not None
    jobs, cpu = process.stdout.readline().split()
    return float(jobs), float(cpu)


def measure(
    base: str, trees: Sequence[Path], processes: int, turns: int, seconds: float = TURN_SECONDS, size: int = 1
) -> list[Contender]:
    """The first tree is the one that the others are compared with. Each makes a ledger, at `base` and its number."""
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(Contender(tree, f"{base}{number}", processes, size)) for number, tree in enumerate(trees)
        ]
        for number in range(turns + 1):
            for contender in contenders if number % 2 else reversed(contenders):
                contender.turn(seconds)
            if not number:  # a warm-up
                for contender in contenders:
                    contender.turns.clear()
    return contenders


def table(contenders: Sequence[Contender]) -> str:
    first = contenders[0].turns
    lines = ["| checkout | jobs/s | ratio | µs of processor time a job | ratio |", "|---|---|---|---|---|"]
    for one in contenders:
        rate, cpu = median(turn.rate for turn in one.turns), median(turn.cpu_us for turn in one.turns)
        rates = median(turn.rate / beside.rate for turn, beside in zip(one.turns, first, strict=True))
        cpus = median(turn.cpu_us / beside.cpu_us for turn, beside in zip(one.turns, first, strict=True))
        lines.append(f"| {one.name} | {rate:,.0f} | {rates:.3f} | {cpu:,.0f} | {cpus:.3f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="another checkout; the first is compared with")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--processes", type=int, default=1, help="processes of each checkout that work at once")
    parser.add_argument("--batches", action="store_true", help=f"jobs in batches of {BATCH}, not one after another")
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=HERE) as name, ExitStack() as stack:
        base = f"sqlite:///{name}/ledger"
        if asked.store == "postgres":
            base = f"{stack.enter_context(PostgresServer.create()).url}?schema=ledger"
        print(table(measure(base, [*asked.trees, HERE], asked.processes, asked.turns, size=BATCH if asked.batches else 1)))


if __name__ == "__main__":
    main()
