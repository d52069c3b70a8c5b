"""Ledger: the verbs. Each admits its input, sends one call through the door and dresses the answer."""

from holdfast.ledger.export import ExportVerbs
from holdfast.ledger.verbs.explaining import ExplainVerbs
from holdfast.ledger.verbs.fleet import FleetVerbs, QueueVerbs, UpkeepVerbs
from holdfast.ledger.verbs.holders import AppendVerbs, GateVerb, HolderVerbs
from holdfast.ledger.verbs.jobs import JobVerbs
from holdfast.ledger.verbs.operators import DeadLetterVerbs, OperatorVerbs
from holdfast.ledger.verbs.policies import PolicyVerbs
from holdfast.ledger.verbs.proofs import KeyVerbs, SealVerbs
from holdfast.ledger.verbs.reading import ReadVerbs
from holdfast.ledger.verbs.runs import RunVerbs
from holdfast.ledger.verbs.sinks import SinkVerbs


class Ledger(
    JobVerbs,
    HolderVerbs,
    OperatorVerbs,
    DeadLetterVerbs,
    AppendVerbs,
    UpkeepVerbs,
    PolicyVerbs,
    QueueVerbs,
    FleetVerbs,
    SinkVerbs,
    GateVerb,
    KeyVerbs,
    SealVerbs,
    ExportVerbs,
    RunVerbs,
    ExplainVerbs,
    ReadVerbs,
):
    """The durable record of jobs and events, and the only thing that changes them. Safe to use from many threads.

    Made by `holdfast.open`. Verbs that change something take `request_id=` (send the same one again after a lost answer) and
    `actor=` (who is asking); verbs on one job take `expected_rev=`.
    """
