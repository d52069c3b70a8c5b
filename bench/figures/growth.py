"""Sizes of tables and indexes over cycles of fill, drain and prune: the last against the first.

On PostgreSQL every table is vacuumed twice in each cycle, after the drain and after the pruning, by a plain VACUUM, as autovacuum
runs it. `bench.churn` leaves it to autovacuum.
"""

import holdfast
from bench import cycles
from bench.places import Host
from bench.report import Heading, Row
from bench.sizes import Sizes
from bench.work import BATCH

HEADING = Heading(
    "KiB after cycles of fill, drain and prune: the last against the first",
    ours="last",
    base="first",
    judged="ratio_most",
    unit="",
)
TARGET = 1.10
SHOWN_KIB = 256.0
"""Tables and indexes that have more than this after a cycle have a line of their own."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    found: list[dict[str, float]] = []
    ended = 0
    with host.place() as place, holdfast.open(place.url) as ledger:
        cycles.work(ledger, BATCH)  # each cycle leaves its last batch to the next one, and the first one needs one too
        for _ in range(sizes.cycles):
            ended += cycles.cycle(ledger, sizes.cycle_jobs, place.vacuum)
            found.append({name: size / 1_024 for name, size in place.object_sizes().items()})
        left = place.events("succeeded")
    assert left > 0
    names = [name for name in found[0] if max(sizes_of.get(name, 0.0) for sizes_of in found) > SHOWN_KIB]
    rounds = [sum(sizes_of.values()) for sizes_of in found]
    rows = [Row(f"{host.name}, all", rounds[-1], rounds[0], TARGET, ended, {"cycles": rounds})]
    for name in sorted(names, key=found[-1].__getitem__, reverse=True):
        each = [sizes_of[name] for sizes_of in found]
        rows.append(Row(f"{host.name}, {name}", each[-1], each[0], None, ended, {"cycles": each}))
    return rows
