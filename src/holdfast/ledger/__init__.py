"""The ledger: its verbs, and the commit pipeline through which they change the store."""

from holdfast.ledger.export import ExportVerbs
from holdfast.ledger.keyring import Keyring
from holdfast.ledger.public import Beat, Change, Event, HeldJob, Job, JobPage, WorkerRecord
from holdfast.ledger.signing import SignedFence
from holdfast.ledger.verbs.access import LoginVerbs, NewToken, SessionRecord, SessionVerbs, TokenRecord
from holdfast.ledger.verbs.declarations import DeclarationRecord
from holdfast.ledger.verbs.fleet import FleetVerbs, QueueRecord, QueueVerbs, UpkeepVerbs
from holdfast.ledger.verbs.flow import FlowStatus, FlowVerbs, LimitKeyRecord, LimitRecord, LimitUsage, QueueSettingsRecord
from holdfast.ledger.verbs.groups import GroupChange, GroupRecord, GroupRefusal, GroupVerbs
from holdfast.ledger.verbs.history import HistoryVerbs
from holdfast.ledger.verbs.holders import AppendVerbs, GateVerb, HolderVerbs
from holdfast.ledger.verbs.jobs import JobVerbs
from holdfast.ledger.verbs.letters import LetterGroupVerb
from holdfast.ledger.verbs.operators import DeadLetterVerbs, OperatorVerbs
from holdfast.ledger.verbs.overview import OverviewVerbs
from holdfast.ledger.verbs.policies import PolicyVerbs
from holdfast.ledger.verbs.proofs import Inclusion, KeyRecord, KeyVerbs, ProvenEvent, SealVerbs, TreeHead
from holdfast.ledger.verbs.reading import ReadVerbs
from holdfast.ledger.verbs.schedules import ScheduleRecord, ScheduleVerbs
from holdfast.ledger.verbs.services import RunVerbs, SinkState, SinkVerbs
from holdfast.ledger.verbs.timeline import TimelineVerbs

__all__ = [
    "Beat",
    "Change",
    "DeclarationRecord",
    "Event",
    "FlowStatus",
    "GroupChange",
    "GroupRecord",
    "GroupRefusal",
    "HeldJob",
    "Inclusion",
    "Job",
    "JobPage",
    "KeyRecord",
    "Keyring",
    "Ledger",
    "LimitKeyRecord",
    "LimitRecord",
    "LimitUsage",
    "NewToken",
    "ProvenEvent",
    "QueueRecord",
    "QueueSettingsRecord",
    "ScheduleRecord",
    "SessionRecord",
    "SignedFence",
    "SinkState",
    "TokenRecord",
    "TreeHead",
    "WorkerRecord",
]


class Ledger(
    JobVerbs,
    HolderVerbs,
    OperatorVerbs,
    DeadLetterVerbs,
    GroupVerbs,
    AppendVerbs,
    UpkeepVerbs,
    PolicyVerbs,
    QueueVerbs,
    FleetVerbs,
    ScheduleVerbs,
    FlowVerbs,
    SinkVerbs,
    GateVerb,
    KeyVerbs,
    SessionVerbs,
    LoginVerbs,
    SealVerbs,
    ExportVerbs,
    RunVerbs,
    HistoryVerbs,
    OverviewVerbs,
    LetterGroupVerb,
    TimelineVerbs,
    ReadVerbs,
):
    """The durable record of jobs and events. All changes go through it. It is safe to use from many threads.

    `holdfast.open` returns one. Verbs that change something take `request_id=`, which the caller sends again after a lost answer,
    and `actor=`, the name of the caller. Verbs on one job take `expected_rev=`.
    """
