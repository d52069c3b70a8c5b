"""Compare what a receiver of webhooks got with the events of the ledger."""

import itertools
from collections.abc import Sequence

from holdfast import Ledger
from tests.support.histories import all_events
from tests.support.receiver import Received


def expected(ledger: Ledger) -> list[str]:
    """The ids of all events that are sent, in their order."""
    return [event.id for event in all_events(ledger) if event.from_status != event.to_status]


def check_deliveries(received: Sequence[Received], ids: list[str]) -> None:
    """Check that all messages arrived in order and signed, and twice only after a crash, with the same id and body."""
    delivered = [got.event()["id"] for got in received]
    assert list(dict.fromkeys(delivered)) == ids
    bodies: dict[str, set[bytes]] = {}
    for got in received:
        bodies.setdefault(got.key, set()).add(got.body)
    assert len(bodies) == len(ids)
    assert {len(same) for same in bodies.values()} == {1}
    assert len(delivered) > len(ids), "nothing was sent again: no crash came between a message and its place"
    _check_steps_back(delivered, ids)


def _check_steps_back(delivered: list[str], ids: list[str]) -> None:
    """Check that after each crash the messages continue from an earlier position, in order and without a gap."""
    numbers = {id_: number for number, id_ in enumerate(ids)}
    places = [numbers[id_] for id_ in delivered]
    assert all(after <= before + 1 for before, after in itertools.pairwise(places))
