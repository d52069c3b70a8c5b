"""Memory: a process must not grow over ten times the work."""

import json
import subprocess
import sys
from pathlib import Path

from bench.places import Host
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading(
    "Peak memory of a new process: ten times the work against once",
    ours="much",
    base="little",
    judged="growth",
    unit=" MiB",
)
TARGET = 20.0
ROOT = Path(__file__).parents[2]


def measure(host: Host, sizes: Sizes) -> list[Row]:
    rows = []
    with host.place() as place:
        place.fill("small", sizes.small)
        place.fill("large", sizes.large)
        place.settle()
        for what in ("drain", "follow"):
            little = _peak_mib(what, place.url, "small", sizes.small)
            much = _peak_mib(what, place.url, "large", sizes.large)
            events = place.events("succeeded")
            assert events == sizes.small + sizes.large
            rounds = {"little": [little], "much": [much]}
            rows.append(Row(f"{host.name}, {what}", much, little, TARGET, events, rounds))
    return rows


def _peak_mib(what: str, url: str, queue: str, count: int) -> float:
    command = [sys.executable, "-m", "bench.child", what, url, queue, str(count)]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)
    assert answer["done"] == count, answer
    return float(answer["peak_kib"]) / 1_024
