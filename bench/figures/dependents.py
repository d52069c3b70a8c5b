"""The cost of dependents: one completion that unblocks thousands of jobs against many that unblock ten each."""

from bench import ours
from bench.places import Host, opened
from bench.report import Heading, Row
from bench.rounds import median, take_turns, timed
from bench.sizes import Sizes
from bench.work import KIND, args
from holdfast import Ledger

HEADING = Heading(
    "Jobs let go by one completion against as many by completions of ten each, in one call", ours="one", base="ten each"
)
TARGET = 1.0
EACH = 10


def measure(host: Host, sizes: Sizes) -> list[Row]:
    count = sizes.dependents - sizes.dependents % EACH
    with host.place() as place:
        with opened(place) as (ledger, _):
            for each in (count, EACH):
                let_go(ledger, "warm", count, each)
            place.settle()
            wide, narrow = take_turns(
                sizes.rounds,
                lambda number: let_go(ledger, f"wide-{number}", count, count),
                lambda number: let_go(ledger, f"narrow-{number}", count, EACH),
            )
        written = place.events("unblocked")
        assert written == 2 * count * (1 + sizes.rounds)
    return [Row(host.name, median(wide), median(narrow), TARGET, written, {"one": wide, "ten each": narrow})]


def let_go(ledger: Ledger, queue: str, count: int, each: int) -> float:
    """Jobs unblocked a second, by completions of jobs with that many dependents. The enqueues are not counted."""
    ours.enqueue(ledger, ours.items(queue, count // each))
    fences = ours.hold(ledger, queue, count // each)
    ledger.enqueue_many(
        {"kind": KIND, "queue": "let-go", "args": args(number), "depends_on": [fences[number // each].job_id]}
        for number in range(count)
    )
    return timed(count, lambda: each * ours.complete(ledger, fences))
