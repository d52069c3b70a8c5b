"""`python -m bench.peers [--only name…] [--jobs N] [--rounds N] [--tuned] [--quick] [--no-recovery] [--json FILE]`: the peers."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.machine import facts
from bench.peers import install, npm
from bench.peers.figures import QUICK, Sizes, take
from bench.peers.ground import Ground, contenders
from bench.peers.tables import plain, tables
from bench.places import PostgresHost, SqliteHost
from tools.pgserver import PostgresServer


def main(arguments: Sequence[str] | None = None) -> None:
    offered = contenders()
    asked = _parser(sorted({peer.name for peer in offered})).parse_args(arguments)
    sizes = _sizes(asked)
    peers = [peer for peer in offered if asked.only is None or peer.name in asked.only]
    if asked.tuned:
        tuned = {peer.name for peer in peers if peer.config == "tuned"}
        peers = [peer for peer in peers if peer.config == "tuned" or peer.name not in tuned]
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as name, PostgresServer.create() as server:
        home = Path(name)
        machine = facts(home, [SqliteHost(home), PostgresHost(server)])
        print("\n".join(f"{what}: {value}" for what, value in machine.items()), flush=True)
        ground = Ground(server, home)
        for reason in ground.absent:
            print(f"not installed: {reason}", flush=True)
        taken = take(ground, peers, sizes)
    print("\n" + tables(taken, sizes.recovery_seconds), flush=True)
    if asked.json:
        packages = [*install.versions(), *npm.versions()]
        report = {"machine": machine, "sizes": sizes._asdict(), "packages": packages, "peers": [plain(one) for one in taken]}
        asked.json.write_text(json.dumps(report, indent=2) + "\n")


def _parser(names: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Measure Holdfast beside its peers, which are installed below .bench."
    )
    parser.add_argument("--jobs", type=int, help=f"jobs of a drain ({Sizes().jobs:,} by default)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="name", help=f"all by default: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help=f"drains of each contender ({Sizes().rounds} by default)")
    parser.add_argument("--quick", action="store_true", help="one small round and no recovery; too short to be quoted")
    parser.add_argument("--tuned", action="store_true", help="leave out the default settings of contenders that are also tuned")
    parser.add_argument("--no-recovery", action="store_true", help="leave out the kills, which take minutes with some contenders")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, round by round, into a file too")
    return parser


def _sizes(asked: argparse.Namespace) -> Sizes:
    sizes = QUICK if asked.quick else Sizes()
    if asked.no_recovery:
        sizes = sizes._replace(recovery_seconds=QUICK.recovery_seconds)
    given = {"jobs": asked.jobs, "rounds": asked.rounds}
    return sizes._replace(**{name: max(1, number) for name, number in given.items() if number is not None})


if __name__ == "__main__":
    main()
