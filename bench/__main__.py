"""`python -m bench [names…] [--jobs N] [--json FILE] [--quick]`: measure the figures and print a table for each."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import FIGURES
from bench.machine import facts
from bench.places import Host, PostgresHost, SqliteHost
from bench.report import plain, table
from bench.sizes import FULL, QUICK, Sizes
from tools.pgserver import PostgresServer

STORES = ("sqlite", "postgres")


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(arguments)
    sizes = _sizes(asked.quick, asked.jobs)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, opened_hosts(Path(name), asked.store) as hosts:
        machine = facts(Path(name), hosts)
        print("\n".join(f"{what}: {value}" for what, value in machine.items()), flush=True)
        report: dict[str, Any] = {"machine": machine, "sizes": sizes._asdict(), "figures": []}
        for figure in asked.names or FIGURES:
            heading, measure = FIGURES[figure]
            rows = [row for host in hosts for row in measure(host, sizes)]
            print("\n" + table(heading, rows), flush=True)
            report["figures"].append(plain(figure, heading, rows))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Holdfast beside the same statements without it."
    )
    parser.add_argument("names", nargs="*", type=_figure, metavar="name", help=f"all by default: {', '.join(FIGURES)}")
    parser.add_argument("--jobs", type=_positive, help=f"jobs for each contender ({FULL.jobs:,} by default)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, round by round, into a file too")
    parser.add_argument("--quick", action="store_true", help="a few minutes in all; too short for figures to be quoted")
    parser.add_argument("--store", choices=STORES, help="one store only")
    return parser


def _figure(text: str) -> str:
    if text not in FIGURES:
        raise argparse.ArgumentTypeError(f"one of {', '.join(FIGURES)}")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _sizes(quick: bool, jobs: int | None) -> Sizes:
    sizes = QUICK if quick else FULL
    return sizes if jobs is None else sizes._replace(jobs=jobs, singles=max(1, jobs // 10))


@contextmanager
def opened_hosts(home: Path, store: str | None) -> Iterator[list[Host]]:
    hosts: list[Host] = [SqliteHost(home)] if store != "postgres" else []
    if store == "sqlite":
        yield hosts
        return
    with PostgresServer.create() as server:
        yield [*hosts, PostgresHost(server)]


if __name__ == "__main__":
    main()
