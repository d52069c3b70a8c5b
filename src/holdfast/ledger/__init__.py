"""The one door to a store: commands in, outcomes out, in groups."""

from holdfast.ledger.face import Beat, Change, Event, Job, WorkerRecord
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.outbox import SinkState

__all__ = ["Beat", "Change", "Event", "Job", "Ledger", "SinkState", "WorkerRecord"]
