"""Ledger: the verbs. Each admits its input, sends one call through the door and dresses the answer."""

from holdfast.ledger.appending import Appending
from holdfast.ledger.exporting import Exporting
from holdfast.ledger.fleet import Fleet
from holdfast.ledger.gate import Gate
from holdfast.ledger.holding import Holding
from holdfast.ledger.inquiry import Inquiry
from holdfast.ledger.keys import Keys
from holdfast.ledger.letters import Letters
from holdfast.ledger.making import Making
from holdfast.ledger.outbox import Sinks
from holdfast.ledger.outside import Outside
from holdfast.ledger.policies import Policies
from holdfast.ledger.queues import Queues
from holdfast.ledger.reading import Reading
from holdfast.ledger.runs import Runs
from holdfast.ledger.seals import Sealed
from holdfast.ledger.upkeep import Upkeep


class Ledger(
    Making,
    Holding,
    Outside,
    Letters,
    Appending,
    Upkeep,
    Policies,
    Queues,
    Fleet,
    Sinks,
    Gate,
    Keys,
    Sealed,
    Exporting,
    Runs,
    Inquiry,
    Reading,
):
    """The durable record of jobs and events, and the only thing that changes them. Safe to use from many threads.

    Made by `holdfast.open`. Verbs that change something take `request_id=` (send the same one again after a lost answer) and
    `actor=` (who is asking); verbs on one job take `expected_rev=`.
    """
