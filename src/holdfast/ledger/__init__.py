"""The ledger: its verbs, and the commit pipeline through which they change the store."""

from holdfast.ledger.ledger import Ledger
from holdfast.ledger.public import Beat, Change, Event, Job, JobPage, WorkerRecord
from holdfast.ledger.signing import Keyring
from holdfast.ledger.verbs.fleet import QueueRecord
from holdfast.ledger.verbs.policies import DeclarationRecord
from holdfast.ledger.verbs.proofs import Inclusion, KeyRecord, ProvenEvent, TreeHead
from holdfast.ledger.verbs.sinks import SinkState

__all__ = [
    "Beat",
    "Change",
    "DeclarationRecord",
    "Event",
    "Inclusion",
    "Job",
    "JobPage",
    "KeyRecord",
    "Keyring",
    "Ledger",
    "ProvenEvent",
    "QueueRecord",
    "SinkState",
    "TreeHead",
    "WorkerRecord",
]
