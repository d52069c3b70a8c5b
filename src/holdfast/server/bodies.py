"""The shapes of requests, and of answers that only HTTP has."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core.audit import Violation
from holdfast.core.explain.model import WhyNotRunning
from holdfast.core.model import FailureStage, Policy, ReasonCode
from holdfast.core.strict_json import CheckedJson
from holdfast.ledger import Beat, Change, QueueRecord
from holdfast.server.call import FenceGiven, ProofGiven
from holdfast.server.problems import Problem
from holdfast.shapes import ClaimedJobView, DeadLetterEntry, JobView, WorkView, answer_shape

BLANKS = b" \t\r\n"
ABSENT = msgspec.Raw(b"")
"""The value of a field with any JSON that was not sent."""


def absent() -> msgspec.Raw:
    return ABSENT


def sent(value: msgspec.Raw) -> msgspec.Raw | None:
    """Return a JSON value as the ledger takes it: None for null, and for a field that was not sent."""
    return None if bytes(value).strip() in (b"", b"null") else value


def checked(value: msgspec.Raw) -> CheckedJson | None:
    """The same for a value that is only stored. The whole body was checked, so that the ledger checks its limits only."""
    found = CheckedJson(bytes(value).strip(BLANKS))
    return None if found in (b"", b"null") else found


def error_sent(value: msgspec.Raw) -> Any:
    """Return an error as the ledger takes it: a text as a text, and an object with its bytes."""
    given = sent(value)
    return msgspec.json.decode(given) if given is not None and bytes(given).lstrip()[:1] == b'"' else given


Duration = str | float
"""A number of seconds, or a text such as "30s" or "5m"."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An object with these fields and no others."""


class EnqueueBody(Body, frozen=True, gc=False):
    kind: str
    args: msgspec.Raw = msgspec.field(default_factory=absent)
    queue: str = "default"
    priority: int | None = None
    delay: Duration | None = None
    available_at: datetime | None = None
    dedupe_key: str | None = None
    dedupe: Literal["live", "forever"] | None = None
    dedupe_for: Duration | None = None
    on_duplicate: Literal["keep", "replace", "postpone"] | None = None
    postpone_max: Duration | None = None
    tier: str | None = None
    policy: dict[str, Any] | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    depends_on: list[int] | None = None
    on_dependency_failure: Literal["wait", "cancel", "dead_letter"] | None = None
    limits: dict[str, int] | list[str] | None = None
    partition: str | None = None
    requires: list[str] | None = None
    for_worker: str | None = None
    group: str | None = None


class DeclaredEnqueueBody(EnqueueBody, frozen=True, gc=False):
    """A job that is made later. Without a queue, it goes to the one that the handler of its kind declares."""

    queue: str | None = None  # type: ignore[assignment]


class EnqueueItem(EnqueueBody, frozen=True, gc=False):
    """One of many jobs. The others may name it by its `ref` in their `depends_on`."""

    depends_on: list[int | str] | None = None  # type: ignore[assignment]
    ref: str | None = None


class EnqueueManyBody(Body, frozen=True):
    jobs: list[EnqueueItem]


class EnqueueManyQuery(Body, frozen=True):
    return_: Literal["ids", "jobs"] = msgspec.field(default="ids", name="return")


class EnqueuedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids, or with `return=jobs` the jobs."""

    job_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    new: int | msgspec.UnsetType = msgspec.UNSET
    existing: list[int] | msgspec.UnsetType = msgspec.UNSET
    """The places, from 0, of jobs that existed already, found by their dedupe keys."""
    at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    """When the new jobs were created; null if there is none."""
    jobs: list[JobView] | msgspec.UnsetType = msgspec.UNSET


class JobPageAnswer(msgspec.Struct, frozen=True):
    jobs: list[JobView]
    next_after: int | None
    """The `after` of the next page; null if there is none."""
    next_cursor: str | None
    searched: int | None = None
    """How many jobs were examined for `text`; null without it."""
    stopped: bool = False
    """True if the search stopped early. The next page goes on there."""
    why: dict[str, WhyNotRunning] | msgspec.UnsetType = msgspec.UNSET
    """With `why=true`: what keeps each queued job from being claimed, by its id. The words are those of its explanation."""


JobOnly = answer_shape("JobOnly", job=JobView)
ChangeAnswer = answer_shape("ChangeAnswer", change=Change)
HeartbeatAnswer = answer_shape("HeartbeatAnswer", beat=Beat)
ClaimedAnswer = answer_shape("ClaimedAnswer", job=ClaimedJobView)


class ClaimsQuery(Body, frozen=True):
    return_: Literal["jobs", "work"] = msgspec.field(default="jobs", name="return")


class ClaimsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs, or with `return=work` only what a worker needs of them."""

    jobs: list[ClaimedJobView] | msgspec.UnsetType = msgspec.UNSET
    work: list[WorkView] | msgspec.UnsetType = msgspec.UNSET


class CancelledAnswer(msgspec.Struct, frozen=True):
    job: JobView
    is_over: bool
    """False if its holder was asked to stop."""


ReplayedAnswer = answer_shape("ReplayedAnswer", job=JobView, is_new=bool)


class ListQuery(Body, frozen=True):
    status: list[str] | None = None
    phase: list[str] | None = None
    queue: str | None = None
    kind: str | None = None
    owner: str | None = None
    incarnation: str | None = None
    correlation_id: str | None = None
    dedupe_key: str | None = None
    replay_of: int | None = None
    waiting: bool = False
    assist_requested: bool | None = None
    text: str | None = None
    time: str = "created"
    """The time that `since` and `until` mean: created, updated or finished."""
    since: datetime | None = None
    until: datetime | None = None
    order: str = "oldest"
    after: int = 0
    cursor: str | None = None
    limit: int = 100
    fields: Literal["all", "brief"] = "all"
    why: bool = False
    """Whether the answer says why queued jobs wait."""


class GetQuery(Body, frozen=True):
    wait: float = 0.0
    """How many seconds to wait for the job's end, up to 30."""


class EventsQuery(Body, frozen=True):
    types: str | None = None
    """Names of types, separated by commas."""
    since: datetime | None = None
    until: datetime | None = None
    correlation_id: str | None = None
    after: int = 0
    limit: int = 100
    stable: bool = False
    """For followers, without other filters: only events before which no other can still be committed."""


class ExplainQuery(Body, frozen=True):
    to_claim: bool = False
    """For a caller that wants to claim the job itself: leave out whether there are workers."""


class PageQuery(Body, frozen=True):
    after: int = 0
    limit: int = 100


class FlowQuery(Body, frozen=True):
    max_age: float = 1.0
    """How many seconds old the numbers may be."""


class NameQuery(Body, frozen=True):
    after: str = ""
    limit: int = 100


JobPolicyAnswer = answer_shape("JobPolicyAnswer", policy=Policy)
UndoStepsAnswer = answer_shape("UndoStepsAnswer", steps=list[dict[str, Any]])
ViolationsAnswer = answer_shape("ViolationsAnswer", violations=list[Violation])


class ClaimJobBody(Body, frozen=True):
    ttl: Duration | None = None
    labels: tuple[str, ...] = ()
    """What the worker has, for a job that requires labels."""


class ClaimBody(Body, frozen=True):
    queues: list[str]
    kinds: list[str] | None = None
    limit: int = 1
    start: bool = False
    wait_s: float = 0.0
    labels: tuple[str, ...] = ()
    """What the worker has, for jobs that require labels."""


class FenceBody(Body, frozen=True):
    fence: FenceGiven
    proof: ProofGiven | None = None
    reason: str | None = None


class BeatEntry(Body, frozen=True, gc=False):
    fence: FenceGiven
    proof: ProofGiven | None = None
    stage: str | None = None
    progress: int | None = None
    assist_requested: bool | None = None


class HeartbeatBody(BeatEntry, frozen=True):
    checkpoint: msgspec.Raw = msgspec.field(default_factory=absent)
    undo: dict[str, Any] | None = None


class CompletionEntry(Body, frozen=True, gc=False):
    fence: FenceGiven
    proof: ProofGiven | None = None
    result: msgspec.Raw = msgspec.field(default_factory=absent)


class CompleteBody(CompletionEntry, frozen=True):
    gate: bool = False


class FailBody(Body, frozen=True):
    fence: FenceGiven
    error: msgspec.Raw
    proof: ProofGiven | None = None
    retryable: bool = True
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    retry_after: Duration | None = None


class ResumeBody(Body, frozen=True):
    fence: FenceGiven | None = None
    proof: ProofGiven | None = None
    reason: str | None = None


class StallBody(ResumeBody, frozen=True):
    error: msgspec.Raw = msgspec.field(default_factory=absent)
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None


class GateBody(Body, frozen=True):
    fence: FenceGiven


class HeartbeatsBody(Body, frozen=True):
    fences: list[FenceGiven] = []
    beats: list[BeatEntry] = []
    """Heartbeats with fields. Their answers follow those of `fences`."""
    wait: bool = True
    """Wait about two seconds for jobs that another transaction has locked. Otherwise they are refused at once."""


class BeatItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the two."""

    beat: Beat | None = None
    problem: Problem | None = None


BeatsAnswer = answer_shape("BeatsAnswer", answers=list[BeatItem])


class CompletionsBody(Body, frozen=True):
    completions: list[CompletionEntry]
    settle: bool = False
    """Answer `{}` for a job that is completed, instead of its change."""
    beats: list[BeatEntry] = []
    """With `settle`: the last heartbeats of these jobs, recorded before their ends."""


class ChangeItem(msgspec.Struct, frozen=True, omit_defaults=True):
    change: Change | None = None
    problem: Problem | None = None


CompletionsAnswer = answer_shape("CompletionsAnswer", answers=list[ChangeItem])


class ReasonBody(Body, frozen=True):
    reason: str | None = None


class CancelBody(Body, frozen=True):
    hard: bool = False
    reason: str = "requested"


class DeadLetterBody(Body, frozen=True):
    reason_code: ReasonCode
    failure_stage: FailureStage | None = None
    error: msgspec.Raw = msgspec.field(default_factory=absent)


class CompensateBody(Body, frozen=True):
    outcome: Literal["compensated", "compensation_failed"]
    reason: str | None = None


class MoveBody(Body, frozen=True):
    queue: str | None = None
    for_worker: str | msgspec.UnsetType | None = msgspec.UNSET
    """The only worker that may have it from now on, or null for any."""
    reason: str | None = None


class ReprioritiseBody(Body, frozen=True):
    priority: int
    reason: str | None = None


class RescheduleBody(Body, frozen=True):
    available_at: datetime | None = None
    delay: Duration | None = None
    reason: str | None = None


class DeadLettersQuery(Body, frozen=True):
    queue: str | None = None
    kind: str | None = None
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    since: datetime | None = None
    until: datetime | None = None
    discarded: bool = False
    after: int = 0
    limit: int = 100
    return_: Literal["letters", "jobs"] = msgspec.field(default="letters", name="return")


class DeadLettersAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The letters, or with `return=jobs` the jobs."""

    next_after: int | None
    dead_letters: list[DeadLetterEntry] | msgspec.UnsetType = msgspec.UNSET
    jobs: list[JobView] | msgspec.UnsetType = msgspec.UNSET


class NewestReplaysBody(Body, frozen=True):
    job_ids: list[int]


class NewestReplaysAnswer(msgspec.Struct, frozen=True):
    replays: dict[str, JobView]
    """The newest replay of each job that has one, by the job's id."""


QueuesAnswer = answer_shape("QueuesAnswer", queues=list[QueueRecord])
QueueStateAnswer = answer_shape("QueueStateAnswer", name=str, paused=bool)
CountsAnswer = answer_shape("CountsAnswer", counts=dict[str, dict[str, int]])
