"""Single enqueues: callers on many threads share their commits, so together they should be much faster than one alone."""

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row, compared
from bench.rounds import counted, take_turns
from bench.sizes import Sizes

HEADING = Heading("Single enqueues: many threads against one", ours="64 threads", base="one thread")
TARGETS = {"PostgreSQL": 5.0, "SQLite": 2.5}


def measure(host: Host, sizes: Sizes) -> list[Row]:
    few, many = max(1, sizes.singles // sizes.rounds), sizes.per_round
    with host.place() as place:
        before = place.events("enqueued")
        with opened(place) as (ledger, _):
            ours.enqueue_singly(ledger, "warm", few, sizes.threads)
            place.settle()
            together, alone = take_turns(
                sizes.rounds,
                lambda _: counted(many, place.meter(), lambda: ours.enqueue_singly(ledger, "many", many, sizes.threads)),
                lambda _: counted(few, place.meter(), lambda: ours.enqueue_singly(ledger, "one", few, 1)),
            )
        written = place.events("enqueued") - before
        assert written == few + sizes.rounds * (few + many)
    return [compared(host.name, together, alone, TARGETS[host.name], written, ("threads", "one thread"))]
