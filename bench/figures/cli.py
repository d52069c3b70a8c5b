"""The time of `holdfast task heartbeat`, process start to end, against Python that imports sqlite3."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count

import holdfast
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes
from bench.work import KIND
from holdfast.agent import Agent

HEADING = Heading("`holdfast task heartbeat` on SQLite, runs a second, against `import sqlite3`", ours="beat", base="sqlite3")
TARGET = 1 / 4
PROGRAM = "import sys; from _holdfast_program import main; main()"
"""What the installed script does."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    if host.name != "SQLite":
        return []
    with host.place() as place:
        with holdfast.open(place.url) as ledger:
            job = ledger.enqueue(KIND)
            Agent(ledger, "bench").start(job.id, ttl="1h")
        numbers = count(1)

        def beat() -> None:
            words = ["--id", str(job.id), "--agent", "bench", "--request-id", f"r-{next(numbers)}", "--db", place.url]
            _run(PROGRAM, "task", "heartbeat", *words)

        ours, base = take_turns(
            sizes.rounds,
            lambda _: timed(sizes.runs, lambda: _times(sizes.runs, beat)),
            lambda _: timed(sizes.runs, lambda: _times(sizes.runs, lambda: _run("import sqlite3"))),
        )
        written = place.events("heartbeat")
        assert written == sizes.rounds * sizes.runs
    return [Row(host.name, median(ours), median(base), TARGET, written, {"beat": ours, "sqlite3": base})]


def _times(runs: int, work: Callable[[], None]) -> None:
    for _ in range(runs):
        work()


def _run(program: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", program, *words], check=True, stdout=subprocess.DEVNULL, env=os.environ)
