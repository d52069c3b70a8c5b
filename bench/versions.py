"""`python -m bench.versions TREE [TREE…]`: what a job costs in other checkouts of Holdfast, beside this one.

Each checkout runs in processes of its own, on a ledger of its own. They take turns of a fraction of a second, so that a machine
that gets slower does so for all of them; the medians of the ratios of neighbouring turns are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import psycopg

from bench.cpu import Meter
from bench.peers.ground import database
from bench.version import REMOTE, WORKS
from bench.volume import PostgresVolume, SqliteVolume, Volume
from tools.pgserver import PostgresServer

HERE = Path(__file__).parent.parent
TURN_SECONDS = 0.5
TURNS = 40


class Turn(NamedTuple):
    """One turn of all processes of a checkout. The costs are for each job, heartbeat, event or call."""

    rate: float
    all_us: float
    client_us: float
    serve_us: float | None
    server_us: float | None
    written_bytes: float


class Site(NamedTuple):
    """A new ledger's place: a database of its own, with a connection to it, or a file."""

    url: str
    watcher: "psycopg.Connection[Any] | None"
    path: Path

    def volume(self, writers: Sequence[int]) -> Volume:
        return SqliteVolume(self.path, writers) if self.watcher is None else PostgresVolume(self.watcher)


@contextmanager
def sqlite_site(home: Path) -> Iterator[Site]:
    path = home / f"{uuid.uuid4().hex}.db"
    yield Site(f"sqlite:///{path}", None, path)


@contextmanager
def postgres_site(server_url: str) -> Iterator[Site]:
    with database(server_url, f"version_{uuid.uuid4().hex}") as url, psycopg.connect(url, autocommit=True) as watcher:
        yield Site(url, watcher, Path())


class Served:
    """`holdfast serve` of a checkout, with a token for a worker of each name."""

    def __init__(self, url: str, environment: dict[str, str], names: Sequence[str]) -> None:
        self._environment = environment
        self.tokens = {name: self._token(url, name) for name in names}
        command = [sys.executable, "-m", "holdfast", "serve", "--db", url, "--port", "0", "--no-link"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[-1]
        self.pid = self._process.pid

    def _token(self, url: str, name: str) -> str:
        command = [sys.executable, "-m", "holdfast", "token", "new", "--role", "worker", "--name", name, "--db", url, "--json"]
        made = subprocess.run(command, env=self._environment, check=True, capture_output=True)
        return str(json.loads(made.stdout)["data"]["text"])

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


class Contender:
    """Processes that do one kind of work, each in a queue of its own."""

    def __init__(self, tree: Path, site: Site, work: str, processes: int) -> None:
        self.name = str(tree)
        self.turns: list[Turn] = []
        self.done = 0.0
        self._site = site
        self._environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        queues = [f"queue-{number}" for number in range(processes)]
        self._served = Served(site.url, self._environment, queues) if work.startswith(REMOTE) else None
        self._processes = [self._start(queue, work) for queue in queues]
        self._volume = site.volume([process.pid for process in self._processes] if self._served is None else [self._served.pid])

    def _start(self, queue: str, work: str) -> "subprocess.Popen[str]":
        url, environment = self._site.url, self._environment
        if self._served is not None:
            url, environment = self._served.url, {**environment, "HOLDFAST_TOKEN": self._served.tokens[queue]}
        command = [sys.executable, str(HERE / "bench" / "version.py"), url, queue, work]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self) -> None:
        """Forget the turns before, and note the size of the ledger."""
        self.turns.clear()
        self.done, self._stored = 0.0, self._volume.stored()

    def stored_bytes(self) -> float:
        """How much the ledger has grown for each job."""
        return (self._volume.stored() - self._stored) / self.done

    def turn(self, seconds: float) -> None:
        self._ask(f"prepare {seconds}")
        meter = Meter([] if self._served is None else [self._served.pid], self._site.watcher)
        written = self._volume.written()
        answers = [list(map(float, line.split())) for line in self._ask(f"run {seconds}")]
        done, cpu = sum(answer[0] for answer in answers), sum(answer[2] for answer in answers)
        rate = sum(answer[0] / answer[1] for answer in answers)
        each = (self._volume.written() - written) / done
        client, spent = cpu / done * 1e6, meter.spent(round(done))
        serve = None if self._served is None else spent.client
        self.turns.append(Turn(rate, client + spent.client + (spent.server or 0.0), client, serve, spent.server, each))
        self.done += done

    def _ask(self, line: str) -> list[str]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        return [process.stdout.readline() for process in self._processes if process.stdout is not None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.communicate()
        if self._served is not None:
            self._served.close()


class Result(NamedTuple):
    """The turns of one checkout, and what its ledger has grown by for each job."""

    name: str
    turns: list[Turn]
    stored_bytes: float


def measure(
    site: Callable[[], AbstractContextManager[Site]],
    trees: Sequence[Path],
    *,
    work: str = "lone",
    processes: int = 1,
    turns: int = TURNS,
    seconds: float = TURN_SECONDS,
) -> list[Result]:
    """The first tree is the one that the others are compared with. Each makes a ledger at a site of its own."""
    with ExitStack() as stack:
        contenders = [stack.enter_context(Contender(tree, stack.enter_context(site()), work, processes)) for tree in trees]
        for number in range(turns + 1):
            for contender in contenders if number % 2 else reversed(contenders):
                contender.turn(seconds)
            if not number:  # a warm-up
                for contender in contenders:
                    contender.begin()
        return [Result(one.name, one.turns, one.stored_bytes()) for one in contenders]


def table(work: str, results: Sequence[Result]) -> str:
    parts = ("µs in all", "µs of the client", "µs of holdfast serve", "µs of PostgreSQL")
    columns = ("a second", *parts, "bytes written", "bytes more in the ledger")
    lines = [f"| {work} | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    first = results[0]
    for one in results:
        medians = [
            _cell([turn[field] for turn in one.turns], [turn[field] for turn in first.turns])
            for field in range(len(Turn._fields))
        ]
        lines.append(f"| {one.name} | {' | '.join([*medians, _cell([one.stored_bytes], [first.stored_bytes])])} |")
    return "\n".join(lines)


def _cell(found: Sequence[float | None], base: Sequence[float | None]) -> str:
    """The median, and the median of the ratios to neighbouring turns of the first checkout."""
    values = [value for value in found if value is not None]
    ratios = [value / beside for value, beside in zip(found, base, strict=True) if value is not None and beside]
    if not values:
        return "–"
    return f"{median(values):,.1f}" + (f" ({median(ratios):.3f})" if ratios else "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="another checkout; the first is compared with")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--work", choices=WORKS, nargs="+", default=["lone"], help="what to do, one after the other")
    parser.add_argument("--processes", type=int, default=1, help="processes of each checkout that work at once")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=TURN_SECONDS, help="how long a turn takes")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=HERE) as name, ExitStack() as stack:
        server = stack.enter_context(PostgresServer.create()) if asked.store == "postgres" else None

        def site() -> AbstractContextManager[Site]:
            return sqlite_site(Path(name)) if server is None else postgres_site(server.url)

        for work in asked.work:
            options = {"processes": asked.processes, "turns": asked.turns, "seconds": asked.seconds}
            print(table(work, measure(site, [*asked.trees, HERE], work=work, **options)) + "\n", flush=True)


if __name__ == "__main__":
    main()
