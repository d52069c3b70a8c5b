"""The shape of every command's `--json` answer, and the JSON Schemas (2020-12) made from the shapes.

Only `holdfast schema` and `--field` import this module, so that other commands start faster. Each command has an entry in SHAPES.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast import shapes
from holdfast.agent.brief import Brief, TaskDetails
from holdfast.agent.tasks import Collected, Task
from holdfast.cli.output import SCHEMA_VERSION
from holdfast.cli.top import LedgerOverview
from holdfast.core.doctor import Diagnosis
from holdfast.core.explain import Explanation
from holdfast.core.liveness import HealthVerdict
from holdfast.core.policy import SourcedField
from holdfast.core.restart import TerminalReason
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import (
    DeclarationRecord,
    GroupChange,
    GroupRecord,
    KeyRecord,
    LimitKeyRecord,
    LimitRecord,
    QueueSettingsRecord,
    ScheduleRecord,
    SinkState,
    TokenRecord,
    WorkerRecord,
)
from holdfast.ledger.verbs.services import RunState
from holdfast.proof.export_format import EndLine
from holdfast.proof.findings import CheckedCounts
from holdfast.proof.keys import KeyRole
from holdfast.shapes import JobView, Shape, answer_shape

EnqueueManyAnswer = answer_shape("EnqueueManyAnswer", Shape, job_ids=list[int], new=int)
PlacementAnswer = answer_shape("PlacementAnswer", Shape, jobs=list[shapes.PlacedJob])
OutcomeAnswer = answer_shape("OutcomeAnswer", Shape, jobs=list[shapes.ChangedJob])
DialectEventAnswer = answer_shape("DialectEventAnswer", Shape, dialect=Dialect, event=dict[str, Any])
QueueAnswer = answer_shape("QueueAnswer", Shape, queue=shapes.QueueEntry)
DiscardAnswer = answer_shape("DiscardAnswer", Shape, discarded=list[int])
DeadLetterListAnswer = answer_shape(
    "DeadLetterListAnswer", Shape, dead_letters=list[shapes.DeadLetterEntry], next_after=int | None
)
TaskAnswer = answer_shape("TaskAnswer", Shape, task=Task)


class TaskOutcomeCounts(Shape, frozen=True):
    """The number of tasks that `task run` took, by outcome."""

    succeeded: int
    failed: int
    released: int
    lost: int


class WorkersRunAnswer(Shape, frozen=True):
    """With `--workers`: the number of workers, and how often one was restarted."""

    workers: int
    restarts: int


class SweepAnswer(Shape, frozen=True):
    events: dict[str, int]
    """The number of new events of each type."""
    unsigned: int
    """The number of jobs that were skipped because no server key was loaded."""


class Receipt(Shape, frozen=True):
    """A `LivenessHeartbeatReceiptV1`; its hashes are 32 numbers each."""

    run_id: str
    episode_id: list[int]
    emitted_at_tick: int
    time_envelope_ref: list[int]
    health_verdict: HealthVerdict
    restart_count: int
    max_restarts: int
    uptime_ms: int
    detail: str | None


RunAnswer = answer_shape("RunAnswer", Shape, run=RunState)
RunListAnswer = answer_shape("RunListAnswer", Shape, runs=list[RunState], now=datetime)


class RunEndAnswer(Shape, frozen=True):
    run_id: str
    restarts: int
    last_exit: int | None
    reason: TerminalReason
    receipt: Receipt | None


BeatAnswer = answer_shape("BeatAnswer", Shape, beat=bool)


class DemoAnswer(Shape, frozen=True):
    ledger: str
    jobs: int
    events: int
    recorded_by: dict[str, int]
    silence_s: float
    recovery_s: float
    recovery_s_max: float


class KindPolicy(Shape, frozen=True):
    kind: str
    operator: dict[str, Any]
    """The fields that operators set."""
    handler: DeclarationRecord | None
    """The declaration of its handler."""


class TierPolicy(Shape, frozen=True):
    tier: str
    operator: dict[str, Any]


class PolicyAnswer(Shape, frozen=True):
    kind: str | None
    tier: str | None
    fields: list[SourcedField]
    handler: DeclarationRecord | None
    """The declaration of the kind's handler."""
    remarks: list[str]
    """Warnings about a change: no worker has declared the kind, or a value has no effect."""


class LimitSetAnswer(Shape, frozen=True):
    limit: LimitRecord


class LimitGetAnswer(LimitSetAnswer, frozen=True):
    keys: list[LimitKeyRecord]
    next_after: str | None
    """The `--after` of the next page; null if there is none."""


class LimitUnsetAnswer(Shape, frozen=True):
    unset: str
    key: str | None
    """The key whose numbers were removed; null if the limit was."""


SinkAnswer = answer_shape("SinkAnswer", Shape, sink=SinkState)


class NewKeyAnswer(Shape, frozen=True):
    key_id: str
    role: KeyRole
    name: str
    public: str
    file: str
    enrolled: bool
    enrolled_pos: int | None
    why_not: str | None
    revoked: str | msgspec.UnsetType = msgspec.UNSET
    """The key that it replaces."""


KeyAnswer = answer_shape("KeyAnswer", Shape, key=KeyRecord)


class GroupAnswer(Shape, frozen=True):
    group: GroupRecord


class GroupDetailsAnswer(GroupAnswer, frozen=True):
    dead_jobs: list[int]
    """The first jobs that did not succeed."""


ScheduleAnswer = answer_shape("ScheduleAnswer", Shape, schedule=ScheduleRecord)


class NewTokenAnswer(Shape, frozen=True):
    token: TokenRecord
    text: str
    """The token itself. It is not stored and cannot be shown again."""


class PublicKeyEntry(Shape, frozen=True):
    key_id: str
    role: KeyRole
    name: str
    public: str
    enrolled_pos: int
    revoked_pos: int | None


class PublicKeysAnswer(Shape, frozen=True):
    holdfast_keys: Literal[1]
    ledger: str
    vkey: str | None
    keys: list[PublicKeyEntry]
    file: str | msgspec.UnsetType = msgspec.UNSET


class HeadEntry(Shape, frozen=True):
    size: int
    pos: int
    note: str


class DoctorAnswer(Diagnosis, frozen=True, kw_only=True):
    url: str
    holdfast_version: str


class ProofAnswer(Shape, frozen=True):
    file: str
    lines: EndLine
    job_id: int


class ViolationEntry(Shape, frozen=True):
    line: int
    rule: str
    detail: str
    meaning: str
    job_id: int | msgspec.UnsetType = msgspec.UNSET
    rev: int | msgspec.UnsetType = msgspec.UNSET
    pos: int | msgspec.UnsetType = msgspec.UNSET
    from_line: int | msgspec.UnsetType = msgspec.UNSET


class VerifyAnswer(Shape, frozen=True):
    file: str
    intact: bool
    kind: str
    ledger: str | None
    checked: CheckedCounts
    sealed: int
    unsealed: int
    root: str | None
    found: int
    violations: list[ViolationEntry]


class SchemasAnswer(Shape, frozen=True):
    schemas: dict[str, dict[str, Any]]
    """The schema of each answer line, by command."""


class MigrateAnswer(Shape, frozen=True):
    ledger: str
    found: int
    """The schema version that the ledger had; 0 if it was empty."""
    version: int
    applied: list[str]


SHAPES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "beat": (BeatAnswer,),
    "completion": (answer_shape("CompletionAnswer", Shape, shell=str, script=str),),
    "demo": (DemoAnswer,),
    "dlq discard": (DiscardAnswer,),
    "dlq list": (DeadLetterListAnswer,),
    "dlq replay": (shapes.DeadLetterReplayAnswer,),
    "dlq get": (shapes.DeadLetterAnswer,),
    "doctor": (DoctorAnswer,),
    "events append": (shapes.EventAnswer,),
    "events export": (answer_shape("ExportAnswer", Shape, file=str, lines=EndLine),),
    "events tail": (shapes.EventAnswer, DialectEventAnswer),
    "explain": (Explanation,),
    "gate": (answer_shape("GateAnswer", Shape, job_id=int, receipt=Receipt),),
    "job assist": (shapes.AssistAnswer,),
    "job cancel": (shapes.CancelAnswer, shapes.CancelAllAnswer),
    "job dead-letter": (OutcomeAnswer,),
    "job discard": (DiscardAnswer,),
    "job enqueue": (shapes.EnqueueAnswer, EnqueueManyAnswer),
    "job events": (shapes.EventPageAnswer, shapes.DialectEventPageAnswer),
    "job get": (shapes.JobAnswer,),
    "job list": (shapes.JobListAnswer,),
    "job replay": (shapes.ReplayAnswer,),
    "job move": (PlacementAnswer,),
    "job result": (answer_shape("ResultAnswer", Shape, job_id=int, result=Any),),
    "job wait": (answer_shape("WaitAnswer", Shape, jobs=list[JobView]),),
    "job reprioritise": (PlacementAnswer,),
    "job requeue": (OutcomeAnswer,),
    "job reschedule": (PlacementAnswer,),
    "job unassist": (shapes.AssistAnswer,),
    "key enrol": (KeyAnswer,),
    "key export": (PublicKeysAnswer,),
    "key list": (answer_shape("KeyListAnswer", Shape, keys=list[KeyRecord]),),
    "key new": (NewKeyAnswer,),
    "key revoke": (KeyAnswer,),
    "key rotate": (NewKeyAnswer,),
    "limit get": (LimitGetAnswer,),
    "limit list": (answer_shape("LimitListAnswer", Shape, limits=list[LimitRecord]),),
    "limit set": (LimitSetAnswer,),
    "limit unset": (LimitUnsetAnswer,),
    "mcp": (),
    "serve": (),
    "migrate": (MigrateAnswer,),
    "policy list": (answer_shape("PolicyListAnswer", Shape, kinds=list[KindPolicy], tiers=list[TierPolicy]),),
    "policy set": (PolicyAnswer,),
    "policy get": (PolicyAnswer,),
    "policy unset": (PolicyAnswer,),
    "queue get": (answer_shape("QueueGetAnswer", Shape, queue=shapes.QueueCountsEntry),),
    "queue list": (answer_shape("QueueListAnswer", Shape, queues=list[shapes.QueueCountsEntry]),),
    "queue pause": (QueueAnswer,),
    "queue set": (answer_shape("QueueSetAnswer", Shape, settings=QueueSettingsRecord),),
    "queue unpause": (QueueAnswer,),
    "resume": (Brief,),
    "group add": (GroupAnswer,),
    "group cancel": (GroupChange,),
    "group close": (GroupAnswer,),
    "group get": (GroupDetailsAnswer,),
    "group jobs": (answer_shape("GroupMembersAnswer", Shape, jobs=list[JobView]),),
    "group list": (answer_shape("GroupListAnswer", Shape, groups=list[GroupRecord]),),
    "group replay": (GroupChange,),
    "group wait": (GroupAnswer,),
    "schedule add": (ScheduleAnswer,),
    "schedule get": (ScheduleAnswer,),
    "schedule list": (answer_shape("ScheduleListAnswer", Shape, schedules=list[ScheduleRecord]),),
    "schedule pause": (ScheduleAnswer,),
    "schedule preview": (answer_shape("ScheduleTimesAnswer", Shape, times=list[datetime], tz=str),),
    "schedule remove": (answer_shape("ScheduleRemovedAnswer", Shape, removed=str),),
    "schedule resume": (ScheduleAnswer,),
    "schedule run": (shapes.EnqueueAnswer,),
    "schema": (SchemasAnswer,),
    "seal": (answer_shape("SealAnswer", Shape, head=HeadEntry | None),),
    "sink drop": (answer_shape("SinkDropAnswer", Shape, name=str, dropped=bool),),
    "sink list": (answer_shape("SinkListAnswer", Shape, sinks=list[SinkState]),),
    "sink revive": (SinkAnswer,),
    "sink skip": (SinkAnswer,),
    "supervise": (RunEndAnswer, RunAnswer, RunListAnswer),
    "sweep": (SweepAnswer,),
    "task complete": (TaskAnswer,),
    "task fail": (TaskAnswer,),
    "task gc": (Collected,),
    "task get": (TaskDetails,),
    "task heartbeat": (TaskAnswer,),
    "task list": (answer_shape("TaskListAnswer", Shape, tasks=list[Task], next_after=int | None),),
    "task release": (TaskAnswer,),
    "task run": (answer_shape("TaskRunAnswer", Shape, tasks=TaskOutcomeCounts),),
    "task start": (TaskAnswer,),
    "token list": (answer_shape("TokenListAnswer", Shape, tokens=list[TokenRecord]),),
    "token new": (NewTokenAnswer,),
    "token revoke": (answer_shape("TokenAnswer", Shape, token=TokenRecord),),
    "top": (LedgerOverview,),
    "verify": (VerifyAnswer, ProofAnswer),
    "worker list": (answer_shape("WorkerListAnswer", Shape, workers=list[WorkerRecord], now=datetime),),
    "worker run": (answer_shape("WorkerRunAnswer", Shape, worker=str), WorkersRunAnswer),
}
"""The possible shapes of each command's `data`. A command that prints no answer has none."""


SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of one answer line of this command: a success with its `data`, or a failure."""
    shapes = SHAPES[command]
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    forms = [_closed(schema) for schema in schemas]
    data = forms[0] if len(forms) == 1 else {"anyOf": forms}
    definitions = {name: _closed(schema) for name, schema in components.items()}
    return {
        "$schema": SCHEMA_DIALECT,
        "title": f"holdfast {command}",
        "oneOf": [_success(data), _failure()] if forms else [_failure()],
        **({"$defs": definitions} if definitions else {}),
    }


def _success(data: dict[str, Any]) -> dict[str, Any]:
    return _object(schema_version={"const": SCHEMA_VERSION}, success={"const": True}, data=data)


def _failure() -> dict[str, Any]:
    return _object(
        schema_version={"const": SCHEMA_VERSION},
        success={"const": False},
        error={"type": "string"},
        error_code={"type": "string"},
        error_context={"type": "object"},
        suggested_action={"type": "string"},
    )


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object. `request_id` is optional: only commands that take a --request-id answer with it."""
    with_request_id = {**properties, "request_id": {"type": "string"}}
    return {"type": "object", "properties": with_request_id, "required": list(properties), "additionalProperties": False}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, with fields that the shape does not have forbidden."""
    if schema.get("type") != "object" or "properties" not in schema:
        return schema
    return {**schema, "additionalProperties": False}
