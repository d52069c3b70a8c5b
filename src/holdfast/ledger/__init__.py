"""The one door to a store: commands in, outcomes out, in groups."""

from holdfast.ledger.face import Beat, Change, Event, Job, JobPage, WorkerRecord
from holdfast.ledger.keyring import Keyring
from holdfast.ledger.keys import KeyRecord
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.outbox import SinkState
from holdfast.ledger.policies import DeclarationRecord
from holdfast.ledger.queues import QueueRecord
from holdfast.ledger.seals import Inclusion, ProvenEvent, TreeHead

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
