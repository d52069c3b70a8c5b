"""SQLite, PostgreSQL and the pure model get the same commands and must agree: answers, refusals, rows and events."""

import re
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import holdfast
from holdfast.core import vocabulary
from holdfast.core.deadlines import progress_limit, resume_window_ends_at, stall_limit
from holdfast.core.model import HELD, LIVE, TERMINAL, UNDO_KIND, Actor, EventRecord, Fence, JobRecord, Phase, Role, Status
from holdfast.errors import HoldfastError
from holdfast.ledger import Ledger, public
from holdfast.store.events import EventFilter
from holdfast.store.jobs import JobFilter
from holdfast.store.postgres.low_water_marks import LowWaterMarks
from holdfast.testing import ManualClock
from tests.property.model import EPOCH, BeatAnswer, Changed, Draws, Model, Seen, micros
from tests.support.schemas import ReusedSchema

UNKNOWN_JOB = 999_999_999
MODEL_ID = "model"


_UNDOING = re.compile(rb'(\{"job_id":|holdfast\.undo/)(\d+)')


class JobId(int):
    """The model's number of a job, to be translated for each store."""


class ComparedLedger:
    """One real ledger, and the mapping of its job ids to those of the model."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.pos = 0
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}
        self._correlation = re.compile(rf"{ledger.id}-(\d+)".encode())

    def know(self, ours: int, theirs: int) -> None:
        assert self._theirs.setdefault(ours, theirs) == theirs
        assert self._ours.setdefault(theirs, ours) == ours

    def translated(self, value: Any) -> Any:
        """An argument with this ledger's job ids."""
        match value:
            case JobId():
                return self._theirs.get(value, int(value))
            case Fence():
                return msgspec.structs.replace(value, job_id=self._theirs.get(value.job_id, value.job_id))
            case list() | tuple():
                return type(value)(self.translated(item) for item in value)
            case dict():
                return {name: self.translated(item) for name, item in value.items()}
        return value

    def job(self, record: JobRecord) -> JobRecord:
        """A row with the model's job ids."""
        return msgspec.structs.replace(
            record,
            id=self._ours[record.id],
            correlation_id=self._text(record.correlation_id.encode()).decode(),
            replay_of=None if record.replay_of is None else self._ours[record.replay_of],
            args=self._undoing(record.args) if record.kind == UNDO_KIND else record.args,
            dedupe_key=record.dedupe_key and self._undoing(record.dedupe_key.encode()).decode(),
            depends_on=tuple(self.number(id_) for id_ in record.depends_on),
            waits_for=tuple(self.number(id_) for id_ in record.waits_for),
            cancel_reason=record.cancel_reason and self._depending(record.cancel_reason.encode()).decode(),
            last_error=record.last_error and self._depending(record.last_error),
        )

    def event(self, event: EventRecord) -> EventRecord:
        payload = None if event.payload is None else self._text(event.payload)
        if event.rev == 1 and payload is not None:
            payload = self._undoing(re.sub(rb'"replay_of":(\d+)', self._replay, payload))
            payload = re.sub(rb'"depends_on":\[([\d,]+)\]', self._edges, payload)
        if payload is not None and event.type.value == "dead_lettered":
            payload = self._depending(payload)
        return msgspec.structs.replace(
            event,
            job_id=self._ours[event.job_id],
            correlation_id=self._text(event.correlation_id.encode()).decode(),
            payload=payload,
            reason=event.reason and self._depending(event.reason.encode()).decode(),
            cause=event.cause and re.sub(r"^\d+", lambda found: str(self.number(int(found[0]))), event.cause),
            pos=0,
        )

    def _text(self, text: bytes) -> bytes:
        return self._correlation.sub(lambda found: f"{MODEL_ID}-{self._ours[int(found[1])]}".encode(), text)

    def _replay(self, found: re.Match[bytes]) -> bytes:
        return f'"replay_of":{self._ours[int(found[1])]}'.encode()

    def _edges(self, found: re.Match[bytes]) -> bytes:
        return f'"depends_on":[{",".join(str(self.number(int(id_))) for id_ in found[1].split(b","))}]'.encode()

    def _depending(self, text: bytes) -> bytes:
        """The dependency because of which a job ended."""
        return re.sub(rb"dependency (\d+) ", lambda found: f"dependency {self.number(int(found[1]))} ".encode(), text)

    def _undoing(self, text: bytes) -> bytes:
        """The original's id in the args and the key of an undo job."""
        return _UNDOING.sub(lambda found: found[1] + str(self._ours[int(found[2])]).encode(), text)

    def unnamed_jobs(self) -> list[int]:
        """Jobs of this ledger that no answer has named yet, in the order of their ids."""
        return [job.id for job in self.ledger.list(limit=1_000) if job.id not in self._ours]

    def number(self, theirs: Any) -> Any:
        return self._ours.get(theirs, theirs)

    def state(self) -> tuple[list[JobRecord], list[EventRecord]]:
        """Every row, and the events since the last time."""
        jobs, events = self.ledger._store.read(
            lambda session: (session.jobs(JobFilter(limit=1_000)), session.events(EventFilter(after=self.pos, limit=100_000)))
        )
        self.pos = events[-1].pos if events else self.pos
        return [self.job(job) for job in jobs], [self.event(event) for event in events]

    def history(self, ours: int) -> list[EventRecord]:
        chosen = EventFilter(job_id=self._theirs[ours], limit=100_000)
        return [self.event(event) for event in self.ledger._store.read(lambda session: session.events(chosen))]


def plain(answer: Any, twin: ComparedLedger | None = None) -> Any:
    """An answer of either side in one form."""
    number: Callable[[Any], Any] = (lambda id_: id_) if twin is None else twin.number
    match answer:
        case HoldfastError():
            return _refusal(answer, number)
        case list():
            return [plain(item, twin) for item in answer]
        case Seen() | public.Job():
            record = answer.job if isinstance(answer, Seen) else answer.record
            fence = None if answer.fence is None else (answer.fence.attempt, answer.fence.token, answer.fence.worker)
            shown = record if twin is None else twin.job(record)
            return "job", msgspec.structs.replace(shown, token=None), fence, answer.is_new
        case Changed():
            return "change", *answer
        case public.Change():
            return "change", number(answer.job_id), answer.rev, answer.status, micros(answer.at)
        case BeatAnswer():
            return "beat", *answer
        case public.Beat():
            lease = None if answer.lease_expires_at is None else micros(answer.lease_expires_at)
            return "beat", number(answer.job_id), answer.rev, answer.status, lease, answer.cancel_requested
    return answer


def _refusal(error: HoldfastError, number: Callable[[Any], Any]) -> Any:
    """The code of a refusal, and its message and context if the state machine refused."""
    if "status" not in error.context:
        return "refused", error.code
    waits = {"waits_for": [number(id_) for id_ in error.context["waits_for"]]} if "waits_for" in error.context else {}
    ids = {name: number(error.context[name]) for name in ("job_id", "holder_id") if name in error.context}
    return "refused", error.code, error.context | waits | ids


def _same(what: str, found: Any, wanted: Any) -> None:
    assert found == wanted, "\n".join([what, *differences(found, wanted)])


def differences(found: Any, wanted: Any, place: str = "") -> list[str]:
    """The paths at which two values differ."""
    if found == wanted:
        return []
    if isinstance(found, msgspec.Struct) and isinstance(wanted, type(found)):
        found, wanted = msgspec.structs.asdict(found), msgspec.structs.asdict(wanted)
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple) and len(found) == len(wanted):
        found, wanted = dict(enumerate(found)), dict(enumerate(wanted))
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        return [line for key in found for line in differences(found[key], wanted[key], f"{place}.{key}")]
    return [f"{place or 'it'} is {found!r}, should be {wanted!r}"]


def outcome(verb: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return verb(*args, **kwargs)
    except HoldfastError as error:
        return error


# Arguments

QUEUES = ("default", "b", 'odd "{,}\\ é')
KINDS = ("k", "NULL")
TIERS = ("in_home", "unheard of")
WORKERS = ("w", "w:1#2")
texts = st.sampled_from(["x", "é", 'a"\\{}'])
values: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 1.5, "text é\x00", [], {"n": [1, None]}, msgspec.Raw(b'{"b" : 1, "a":\t2.0}')]
)
args = st.sampled_from([None, {}, {"n": 1}, msgspec.Raw(b'{"b" : 1,\n "a": 1e5}')])
errors = st.sampled_from(["broke", {"message": "é\x00", "n": [1]}, {}])
seconds = st.sampled_from([0, 0.001, 1, 5, 30])
policies = st.fixed_dictionaries(
    {},
    optional={
        "heartbeat_interval": st.sampled_from(["1s", "5s", "20s"]),
        "missed_beats_max": st.integers(1, 3),
        "lease_ttl": st.sampled_from(["1s", "10s", "90s"]),
        "resume_window": st.sampled_from(["0s", "4s", "60s"]),
        "attempts_max": st.integers(1, 4),
        "on_exhausted": st.sampled_from(["fail", "dead_letter"]),
        "backoff_base": st.sampled_from(["0s", "3s"]),
        "cancel_grace": st.sampled_from(["0s", "6s"]),
        "progress_timeout": st.sampled_from(["2s", "7s"]),
    },
)
enqueue_options = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(QUEUES),
        "priority": st.integers(-2, 2),
        "dedupe_key": st.sampled_from(["key", "kéy"]),
        "tier": st.sampled_from(TIERS),
        "correlation_id": texts,
        "trace_id": texts,
        "policy": policies,
    },
)
items = st.fixed_dictionaries({"kind": st.sampled_from(KINDS), "args": args}, optional={"options": enqueue_options})
choices = st.sampled_from(["wait", "wait", "cancel", "dead_letter"])
links = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 16, 17, 18, 20]), max_size=3)
"""The dependencies of a job: often none, mostly the jobs used last."""
delays = st.one_of(st.none(), st.none(), seconds.map(lambda s: ("delay", s)), st.integers(-9, 9).map(lambda s: ("at", s)))
windows = st.sampled_from([None, None, "window", "both", "replace", "replace", "postpone", "postpone"])
requests = st.sampled_from(["none", "none", "none", "fresh", "fresh", "r1", "r2"])
revs = st.sampled_from(["any", "any", "any", "any", "right", "right", "wrong"])
actors = st.sampled_from([*[None] * 8, "ann", "w", *(Actor(role, "x", "y" * (role is Role.WORKER)) for role in Role)])
clients = st.sampled_from([None, None, "ann", "w"])
picks = st.sampled_from([*[0] * 10, *[1] * 4, 2, 2, 3, 4, 5, 16, 20])
"""Mostly the job that was used last: long histories find more than many short ones."""
fences = st.tuples(st.sampled_from(["live"] * 9 + ["old", "old", "forged"]), picks)
beats = st.fixed_dictionaries(
    {},
    optional={
        "stage": st.sampled_from(["one", "two é"]),
        "progress": st.sampled_from([0, 1, 2**53 - 1]),
        "assist_requested": st.booleans(),
        "checkpoint": values,
        "undo": st.sampled_from(
            [{"kind": "u"}, {"kind": "é", "args": {"undo": 1}}, {"kind": "u", "args": msgspec.Raw(b'{"n" : 1}')}]
        ),
    },
)
reason_codes = st.sampled_from(["parse_error", "timeout", "timeout", "compensation_failed"])
stages = st.sampled_from(["fetch", "commit"])
steps = st.sampled_from([0.000001, 0.5, 1, 4.999999, 5, 10, 30, 30.000001, 60, 61, 181, 3_700])


edges = st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1, 1]))
waits = st.one_of(st.sampled_from([0, 0, 0.000001, 1, 3]).map(lambda s: ("for", s)), edges.map(lambda edge: ("edge", edge)))
moves: st.SearchStrategy[Any] = st.one_of(
    st.just(("start", {})),
    beats.map(lambda beat: ("heartbeat", beat)),
    beats.map(lambda beat: ("heartbeat", beat)),
    st.sampled_from(
        [
            ("start", {}),
            ("release", {}),
            ("resume", {}),
            ("stall", {}),
            ("stall_or_resume", {}),
            ("sweep", {}),
            ("sweep", {}),
            ("fail", {"error": "broke"}),
            ("complete", {"result": 1}),
        ]
    ),
)
GIVEN_BY = {
    "release": (Status.CLAIMED, Status.RUNNING),
    "stall": (Status.CLAIMED, Status.RUNNING),
    "resume": (Status.STALLED,),
    "acknowledge_cancel": (Status.RUNNING,),
}


class ThreeWays(RuleBasedStateMachine):
    def __init__(self, schema: ReusedSchema, home: Path) -> None:
        super().__init__()
        self.schema = schema
        self.clock = ManualClock()
        self.left_at = self.clock.now()
        """The latest time at which the clock was set back."""
        self.draws = Draws()
        self.home = Path(tempfile.mkdtemp(dir=home))
        urls = {
            "sqlite": f"sqlite:///{self.home}/ledger.db",
            "postgres": f"{schema.url}&options=-csynchronous_commit%3Doff",
        }
        self.twins = [
            ComparedLedger(name, holdfast.open(url, clock=self.clock, entropy=self.draws)) for name, url in urls.items()
        ]
        self.model = Model(lambda: micros(self.clock.now()), self.clock.monotonic, self.draws, MODEL_ID)
        self.fences: list[Fence] = []
        self.named: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.known: dict[int, int] = {}
        self.recent: dict[int, None] = {}
        self.agreed = True

    def teardown(self) -> None:
        try:
            for twin in self.twins if self.agreed else ():
                self._compare_histories(twin)
        finally:
            for twin in self.twins:
                twin.ledger.close()
            self.schema.empty()
            shutil.rmtree(self.home)

    # Calls on all three

    def call_all(self, verb: str, *args: Any, **kwargs: Any) -> None:
        self.draws.step += 1
        self.agreed = False
        expected = outcome(getattr(self.model, verb), args, kwargs)
        for twin in self.twins:
            if twin.name == "postgres":
                # After a slow scan on a busy machine, later claims start behind it for half a second.
                twin.ledger._store._marks = LowWaterMarks()  # type: ignore[attr-defined]
            translated = {name: twin.translated(value) for name, value in kwargs.items()}
            answer = outcome(getattr(twin.ledger, verb), twin.translated(args), translated)
            if verb in ("enqueue", "enqueue_many", "replay", "on_jobs"):
                self._meet(twin, expected, answer)
            if verb == "sweep":
                for ours, theirs in zip(sorted(self.model.jobs.keys() - self.known.keys()), twin.unnamed_jobs(), strict=True):
                    twin.know(ours, theirs)
            _same(f"{twin.name}: answer to {verb}", self._shown(plain(answer, twin)), self._shown(plain(expected)))
        self._compare(expected)
        if kwargs.get("request_id") is not None:
            self.named.append((verb, args, kwargs))
        self.agreed = True

    def _meet(self, twin: ComparedLedger, expected: Any, answer: Any) -> None:
        """Record the job ids of an answer that created jobs."""
        ours = expected if isinstance(expected, list) else [expected]
        theirs = answer if isinstance(answer, list) else [answer]
        for seen, job in zip(ours, theirs, strict=False):
            if isinstance(seen, Seen) and isinstance(job, public.Job) and seen.is_new and job.is_new:
                twin.know(seen.job.id, job.id)

    def _shown(self, answer: Any) -> Any:
        """The part of an answer that is compared. After beats are pruned, a repeated request no longer has their contents."""
        if isinstance(answer, dict):
            # Answers are also kept under drawn ids; how many is not compared.
            return {name: count for name, count in answer.items() if name != "requests"}
        if isinstance(answer, list):
            return [self._shown(item) for item in answer]
        if isinstance(answer, tuple) and isinstance(answer[1], JobRecord) and answer[1].id in self.model.stripped:
            blank = {"stage": None, "progress": None, "progressed_at": None, "assist_requested": False, "checkpoint": None}
            return answer[0], msgspec.structs.replace(answer[1], **blank), *answer[2:]
        return answer

    def _compare(self, expected: Any) -> None:
        fresh = {
            job_id: events[self.known.get(job_id, 0) :]
            for job_id, events in self.model.history.items()
            if len(events) > self.known.get(job_id, 0)
        }
        for twin in self.twins:
            jobs, events = twin.state()
            _same(f"{twin.name}: rows", {job.id: job for job in jobs}, self.model.jobs)
            by_job: dict[int, list[EventRecord]] = {}
            for event in events:
                by_job.setdefault(event.job_id, []).append(event)
            _same(f"{twin.name}: events", by_job, fresh)
            for job_id in fresh:
                self._check(twin, job_id)
        self.known = {job_id: len(events) for job_id, events in self.model.history.items()}
        for job_id in fresh:
            self.recent.pop(job_id, None)
            self.recent[job_id] = None
        self._learn(expected)

    def _learn(self, expected: Any) -> None:
        for seen in expected if isinstance(expected, list) else [expected]:
            if isinstance(seen, Seen) and seen.fence is not None and seen.fence not in self.fences:
                self.fences.append(seen.fence)

    def _compare_histories(self, twin: ComparedLedger) -> None:
        for job_id, job in self.model.jobs.items():
            theirs = twin.translated(JobId(job_id))
            _same(f"{twin.name}: job {job_id}", plain(twin.ledger.get(theirs), twin), plain(Seen(job)))
            _same(f"{twin.name}: history of {job_id}", twin.history(job_id), self.model.history[job_id])
            self._check(twin, job_id)

    def _check(self, twin: ComparedLedger, job_id: int) -> None:
        _same(f"{twin.name}: check of {job_id}", twin.ledger.check(twin.translated(JobId(job_id))), [])

    # Choosing

    def request(self, choice: str) -> dict[str, Any]:
        if choice == "none":
            return {}
        return {"request_id": f"q{self.draws.step}" if choice == "fresh" else choice}

    def rev(self, choice: str, job_id: int) -> dict[str, Any]:
        job = self.model.jobs.get(job_id)
        if choice == "any" or job is None:
            return {}
        return {"expected_rev": job.rev if choice == "right" else job.rev + 1}

    def jobs(self) -> list[JobRecord]:
        """All jobs. The one used last comes last."""
        return [self.model.jobs[job_id] for job_id in self.recent if job_id in self.model.jobs]

    def pick(self, place: int, statuses: frozenset[Status]) -> JobId:
        """A job, mostly one in a status that the verb allows."""
        fit = [job.id for job in self.jobs() if job.status in statuses]
        if place == 20:
            return JobId(UNKNOWN_JOB)
        if place > 15 or not fit:
            fit = list(self.model.jobs) or [UNKNOWN_JOB]
        return JobId(fit[-1 - place % len(fit)])

    def fence(self, choice: tuple[str, int], *statuses: Status) -> Fence:
        """A fence, mostly a valid one of a job in a status that the verb allows."""
        how, place = choice
        live = [job for job in self.jobs() if job.token is not None and job.status in LIVE]
        fit = [
            Fence(job.id, job.attempt, job.token or "", job.owner or job.last_owner or "")
            for job in [job for job in live if job.status in statuses] or live
        ]
        known = fit if fit and how != "old" else self.fences
        found = known[-1 - place % len(known)]
        if how != "forged":
            return found
        lies: list[dict[str, Any]] = [
            {"token": "0" * 32},
            {"attempt": found.attempt + 1},
            {"worker": "another"},
            {"job_id": UNKNOWN_JOB},
        ]
        return msgspec.structs.replace(found, **lies[place % 4])

    def has_fence(self) -> bool:
        return bool(self.fences)

    def has_job(self) -> bool:
        return bool(self.model.jobs)

    def options(self, chosen: dict[str, Any], when: Any, forever: bool) -> dict[str, Any]:
        found = dict(chosen)
        if when is not None:
            how, amount = when
            found |= {"delay": amount} if how == "delay" else {"available_at": self.clock.now() + timedelta(seconds=amount)}
        if forever and "dedupe_key" in found:
            found["dedupe"] = "forever"
        return found

    def call_options(self, options: dict[str, Any], window: str | None) -> dict[str, Any]:
        """The options of a job with a key, with a window or with what the call does with another job that has the key."""
        if window is None or "dedupe_key" not in options:
            return options
        found = dict(options)
        if window in ("window", "both"):
            found.pop("dedupe", None)
            found["dedupe_for"] = 30
        if window in ("replace", "both") and not found.get("depends_on"):
            found["on_duplicate"] = "replace"
        if window == "postpone" and not found.get("depends_on"):
            found.pop("dedupe", None)
            found.pop("available_at", None)
            found |= {"on_duplicate": "postpone", "delay": found.get("delay") or 5}
            found["postpone_max"] = max(30, found["delay"])
        return found

    # Enqueueing and claiming

    @initialize(batch=st.lists(items, min_size=1, max_size=4))
    def begin(self, batch: list[dict[str, Any]]) -> None:
        self._enqueue_many(batch)

    @rule(
        item=items,
        when=delays,
        forever=st.booleans(),
        on=st.one_of(st.just([]), links),
        choice=choices,
        request=requests,
        actor=clients,
        window=windows,
    )
    def enqueue(
        self,
        item: dict[str, Any],
        when: Any,
        forever: bool,
        on: list[int],
        choice: str,
        request: str,
        actor: str | None,
        window: str | None,
    ) -> None:
        options = self.options(item.get("options", {}), when, forever) | self._depending(on, choice)
        options = self.call_options(options, window)
        self.call_all("enqueue", item["kind"], item["args"], actor=actor, **options, **self.request(request))

    @rule(batch=st.lists(items, min_size=1, max_size=4), request=requests, actor=clients)
    def enqueue_many(self, batch: list[dict[str, Any]], request: str, actor: str | None) -> None:
        self._enqueue_many(batch, actor=actor, **self.request(request))

    @rule(kind=st.sampled_from(KINDS[:1]), given=args, key=st.sampled_from(["key", "kéy"]), window=windows, request=requests)
    def call_with_a_key(self, kind: str, given: Any, key: str, window: str | None, request: str) -> None:
        """Calls of one kind with a key, all in one queue: most find another job."""
        options = self.call_options({"dedupe_key": key, "queue": QUEUES[0]}, window)
        self.call_all("enqueue", kind, given, **options, **self.request(request))

    def _depending(self, on: list[int], choice: str) -> dict[str, Any]:
        found = [self.pick(place, LIVE) for place in on if place != 20 or len(on) == 1]
        return {"depends_on": found, "on_dependency_failure": choice} if found else {}

    @rule(
        batch=st.lists(st.tuples(items, links, links, choices), min_size=2, max_size=4),
        forward=st.booleans(),
        request=requests,
        window=windows,
    )
    def enqueue_graph(self, batch: list[Any], forward: bool, request: str, window: str | None) -> None:
        """Enqueue items that depend on each other and on existing jobs."""
        made = []
        for place, (item, inside, outside, choice) in enumerate(batch):
            others = range(place + 1, len(batch)) if forward else range(place)
            refs = [f"r{others[one % len(others)]}" for one in inside if others]
            options = item.get("options", {}) | self._depending(outside, choice)
            on = {"depends_on": [*options.get("depends_on", []), *refs], "on_dependency_failure": choice}
            options = self.call_options(options, window) if not on["depends_on"] else options | on
            made.append({"kind": item["kind"], "args": item["args"], "ref": f"r{place}", **options})
        self.call_all("enqueue_many", made, **self.request(request))

    @precondition(lambda self: any(job.is_waiting for job in self.jobs()))
    @rule(place=picks, work=st.sampled_from(["complete", "complete", "fail", "cancel", "dead_letter", "replay"]))
    def end_what_is_waited_for(self, place: int, work: str) -> None:
        awaited = sorted({on for job in self.jobs() for on in job.waits_for})
        job_id = JobId(awaited[place % len(awaited)])
        fence = self._take(job_id) if self.model.jobs[job_id].status in LIVE else None
        if fence is not None and work != "replay":
            self._end(job_id, fence, work)
        elif work == "replay":
            self.call_all("replay", job_id)

    def _enqueue_many(self, batch: list[dict[str, Any]], **rest: Any) -> None:
        made = [{"kind": item["kind"], "args": item["args"], **item.get("options", {})} for item in batch]
        self.call_all("enqueue_many", made, **rest)

    @rule(
        worker=st.sampled_from(WORKERS),
        queues=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4),
        limit=st.integers(1, 4),
        start=st.booleans(),
        kinds=st.one_of(st.none(), st.none(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=2)),
        incarnation=st.sampled_from([None, None, "boot"]),
        request=requests,
    )
    def claim(self, worker: str, queues: list[str], limit: int, start: bool, kinds: Any, incarnation: Any, request: str) -> None:
        rest = self.request(request)
        self.call_all("claim", worker, queues, limit=limit, start=start, kinds=kinds, incarnation=incarnation, **rest)

    @rule(start=st.booleans(), limit=st.integers(1, 4))
    def claim_from_all(self, start: bool, limit: int) -> None:
        self.call_all("claim", "w", list(QUEUES), limit=limit, start=start)

    @precondition(has_job)
    @rule(
        place=picks,
        worker=st.sampled_from(WORKERS),
        ttl=st.sampled_from([None, None, 2, 100]),
        incarnation=st.sampled_from([None, None, "boot"]),
        request=requests,
        rev=revs,
    )
    def claim_job(self, place: int, worker: str, ttl: Any, incarnation: Any, request: str, rev: str) -> None:
        job_id = self.pick(place, LIVE)
        rest = self.request(request) | self.rev(rev, job_id)
        self.call_all("claim_job", job_id, worker, ttl=ttl, incarnation=incarnation, **rest)

    # Holders

    @precondition(has_job)
    @rule(place=picks, moves=st.lists(st.tuples(waits, moves), min_size=2, max_size=7))
    def hold(self, place: int, moves: list[Any]) -> None:
        """Call several verbs on one job."""
        job_id = self.pick(place % 15, LIVE)
        for wait, (verb, said) in moves:
            job = self.model.jobs.get(job_id)
            if job is None or job.status in TERMINAL:
                return
            self._wait(job, wait)
            if verb == "sweep":
                self.call_all("sweep")
            elif job.token is None:
                self.call_all("claim_job", job_id, "w")
            elif verb == "stall_or_resume":
                self.call_all("stall", job_id)
            else:
                fence = Fence(job_id, job.attempt, job.token, job.owner or job.last_owner or "")
                self.call_all(verb, fence, **said)

    @precondition(has_job)
    @rule(
        place=picks,
        count=st.integers(1, 3),
        end=st.sampled_from(["fail", "cancel", "dead_letter"]),
        work=st.sampled_from(["complete", "fail", "cancel", "wait"]),
    )
    def end_with_undo_steps(self, place: int, count: int, end: str, work: str) -> None:
        """A job registers undo steps and does not succeed. Its undo job ends in any status."""
        job_id = self.pick(place % 15, LIVE)
        fence = self._take(job_id)
        if fence is None:
            return
        for number in range(count):
            self.call_all("heartbeat", fence, undo={"kind": "u", "args": {"n": number}})
        self._end(job_id, fence, end)
        self.call_all("sweep")
        undo = self.model.undo_job(self.model.jobs[job_id])
        if undo is None or undo.status not in LIVE:
            return
        self._wait(undo, ("edge", (0, 0)))
        fence = self._take(JobId(undo.id))
        if fence is not None and work != "wait":
            self._end(JobId(undo.id), fence, work)
        self.call_all("sweep")

    def _take(self, job_id: JobId) -> Fence | None:
        """Claim and start a job if possible."""
        self.call_all("claim_job", job_id, "w")
        job = self.model.jobs.get(job_id)
        if job is None or job.token is None or job.status not in HELD:
            return None
        fence = Fence(job_id, job.attempt, job.token, job.owner or "")
        self.call_all("start", fence)
        return fence

    def _end(self, job_id: JobId, fence: Fence, how: str) -> None:
        match how:
            case "complete":
                self.call_all("complete", fence, None)
            case "fail":
                self.call_all("fail", fence, "no", retryable=False)
            case "cancel":
                self.call_all("cancel", job_id, hard=True)
            case _:
                self.call_all("dead_letter", job_id, reason_code="timeout")

    def _wait(self, job: JobRecord, wait: tuple[str, Any]) -> None:
        """Wait for some seconds, or until a microsecond before, at or after a time limit of the job."""
        how, amount = wait
        edges = _edges(job)
        if how == "for":
            self.clock.advance(amount)
        elif edges:
            which, off = amount
            moment = EPOCH + timedelta(microseconds=edges[which % len(edges)] + off)
            left = (moment - self.clock.now()) / timedelta(seconds=1)
            if left < 0:
                self._jump(left)
            else:
                self.clock.advance(left)

    @precondition(has_fence)
    @rule(which=fences, request=requests, rev=revs)
    def start(self, which: Any, request: str, rev: str) -> None:
        fence = self.fence(which, Status.CLAIMED)
        self.call_all("start", fence, **self.request(request), **self.rev(rev, fence.job_id))

    @precondition(has_fence)
    @rule(which=fences, beat=beats, request=requests, rev=revs)
    def heartbeat(self, which: Any, beat: dict[str, Any], request: str, rev: str) -> None:
        fence = self.fence(which, Status.RUNNING, Status.STALLED)
        self.call_all("heartbeat", fence, **beat, **self.request(request), **self.rev(rev, fence.job_id))

    @precondition(has_fence)
    @rule(which=st.lists(fences, min_size=1, max_size=6))
    def heartbeat_many(self, which: list[Any]) -> None:
        self.call_all("heartbeat_many", [self.fence(choice) for choice in which])

    @precondition(has_fence)
    @rule(which=fences, result=values, request=requests, rev=revs)
    def complete(self, which: Any, result: Any, request: str, rev: str) -> None:
        fence = self.fence(which, Status.RUNNING)
        self.call_all("complete", fence, result, **self.request(request), **self.rev(rev, fence.job_id))

    @precondition(has_fence)
    @rule(which=st.lists(st.tuples(fences, values), min_size=1, max_size=5), request=requests)
    def complete_many(self, which: list[Any], request: str) -> None:
        self.call_all(
            "complete_many", [(self.fence(choice, Status.RUNNING), result) for choice, result in which], **self.request(request)
        )

    @precondition(has_fence)
    @rule(
        which=fences,
        error=errors,
        retryable=st.sampled_from([True, True, True, False]),
        code=st.one_of(st.none(), reason_codes),
        stage=st.one_of(st.none(), stages),
        after=st.one_of(st.none(), st.none(), seconds),
        request=requests,
        rev=revs,
    )
    def fail(self, which: Any, error: Any, retryable: bool, code: Any, stage: Any, after: Any, request: str, rev: str) -> None:
        fence = self.fence(which, Status.RUNNING)
        said = {"retryable": retryable, "reason_code": code, "failure_stage": stage, "retry_after": after}
        self.call_all("fail", fence, error, **said, **self.request(request), **self.rev(rev, fence.job_id))

    @precondition(has_fence)
    @rule(
        which=fences,
        verb=st.sampled_from(["release", "stall", "resume", "acknowledge_cancel"]),
        reason=st.sampled_from([None, "WORKER_ERROR", "OPERATOR_QUEUE_TIMEOUT"]),
        failure=st.one_of(
            st.just({}),
            st.fixed_dictionaries({"error": errors}, optional={"reason_code": reason_codes, "failure_stage": stages}),
        ),
        request=requests,
        rev=revs,
    )
    def give_up_or_return(self, which: Any, verb: str, reason: Any, failure: dict[str, Any], request: str, rev: str) -> None:
        fence = self.fence(which, *GIVEN_BY[verb])
        said = {"reason": reason} | (failure if verb == "stall" else {})
        self.call_all(verb, fence, **said, **self.request(request), **self.rev(rev, fence.job_id))

    # Verbs without a fence

    @precondition(has_job)
    @rule(
        place=picks,
        verb=st.sampled_from(["stall", "resume", "requeue"]),
        reason=st.sampled_from([None, None, None, "NO_PROGRESS", "LEASE_EXPIRED", "WORKER_ERROR"]),
        request=requests,
        actor=actors,
        rev=revs,
    )
    def stall_or_resume(self, place: int, verb: str, reason: Any, request: str, actor: Any, rev: str) -> None:
        job_id = self.pick(place, HELD if verb == "stall" else frozenset({Status.STALLED}))
        self.call_all(verb, job_id, reason=reason, actor=actor, **self.request(request), **self.rev(rev, job_id))

    @rule(limit=st.sampled_from([1_000, 1_000, 1, 2]))
    def sweep(self, limit: int) -> None:
        self.call_all("sweep", limit=limit)

    @precondition(has_job)
    @rule(
        place=picks,
        verb=st.sampled_from(["assist", "unassist", "cancel", "cancel"]),
        hard=st.booleans(),
        reason=texts,
        request=requests,
        actor=actors,
        rev=revs,
    )
    def intervene(self, place: int, verb: str, hard: bool, reason: str, request: str, actor: Any, rev: str) -> None:
        job_id = self.pick(place, frozenset({Status.RUNNING}))
        said = {"hard": hard} if verb == "cancel" else {}
        self.call_all(verb, job_id, reason=reason, **said, actor=actor, **self.request(request), **self.rev(rev, job_id))

    @precondition(has_job)
    @rule(
        place=picks,
        change=st.one_of(
            st.tuples(st.just("move"), st.sampled_from(QUEUES)),
            st.tuples(st.just("reprioritise"), st.integers(-1, 2)),
            st.tuples(st.just("reschedule"), st.sampled_from([0, 5])),
        ),
        request=requests,
        actor=actors,
        rev=revs,
    )
    def place(self, place: int, change: tuple[str, Any], request: str, actor: Any, rev: str) -> None:
        job_id = self.pick(place, frozenset({Status.QUEUED}))
        verb, value = change
        said: dict[str, Any] = {"actor": actor, **self.request(request), **self.rev(rev, job_id)}
        if verb == "reschedule":
            self.call_all(verb, job_id, delay=value, **said)
        else:
            self.call_all(verb, job_id, value, **said)

    @precondition(has_job)
    @rule(
        place=picks,
        verb=st.sampled_from(["dead_letter", "replay", "replay", "annotate", "discard"]),
        code=reason_codes,
        error=st.one_of(st.none(), errors),
        note=st.sampled_from(["discarded", "compensated", "compensation_failed"]),
        reason=st.one_of(st.none(), texts),
        request=requests,
        actor=actors,
        rev=revs,
    )
    def dead_letter_or_replay(
        self, place: int, verb: str, code: str, error: Any, note: str, reason: Any, request: str, actor: Any, rev: str
    ) -> None:
        job_id = self.pick(place, {"dead_letter": LIVE, "replay": TERMINAL - {Status.SUCCEEDED}}.get(verb, TERMINAL))
        said: dict[str, Any] = {"actor": actor, **self.request(request), **self.rev(rev, job_id)}
        match verb:
            case "dead_letter":
                self.call_all(verb, job_id, reason_code=code, error=error, **said)
            case "annotate":
                self.call_all(verb, job_id, note, reason=reason, **said)
            case _:
                self.call_all(verb, job_id, reason=reason, **said)

    @precondition(lambda self: self.model.jobs)
    @rule(
        places=st.lists(picks, min_size=1, max_size=3),
        again=st.booleans(),
        reason=st.one_of(st.none(), texts),
        request=requests,
        actor=actors,
    )
    def replay_many(self, places: list[int], again: bool, reason: Any, request: str, actor: Any) -> None:
        ids = list(dict.fromkeys(self.pick(place, TERMINAL - {Status.SUCCEEDED}) for place in places))
        self.call_all("on_jobs", "replay", ids, again=again, reason=reason, actor=actor, **self.request(request))

    # The ledger as a whole

    @rule(
        what=st.sampled_from(["pause", "unpause", "unpause", "kind", "tier", "unset", "look"]),
        queue=st.sampled_from(QUEUES),
        kind=st.sampled_from([*KINDS, UNDO_KIND]),
        tier=st.sampled_from(TIERS),
        policy=policies,
        request=requests,
        actor=clients,
    )
    def arrange(
        self, what: str, queue: str, kind: str, tier: str, policy: dict[str, Any], request: str, actor: str | None
    ) -> None:
        rest = {"actor": actor, **self.request(request)}
        match what:
            case "kind":
                self.call_all("set_policy", kind, **policy, **rest)
            case "tier":
                self.call_all("set_policy", tier=tier, **policy, **rest)
            case "unset":
                self.call_all("set_policy", kind, **dict.fromkeys(policy), **rest)
            case "look":
                self._look(queue)
            case _:
                self.call_all(what, queue, **rest)

    @rule(what=st.sampled_from(["jobs", "failed", "beats", "requests"]), ago=st.sampled_from([0, 10, 60]))
    def prune(self, what: str, ago: int) -> None:
        before = self.clock.now() - timedelta(seconds=ago)
        if what == "beats" and before <= self.left_at:
            return  # heartbeats behind an event from before the clock was set back stay: a contract test has this
        self.call_all("prune", **{f"{what}_before": before}, batch=10_000)
        for twin in self.twins:
            self._compare_histories(twin)

    def _look(self, queue: str) -> None:
        jobs = self.model.jobs.values()
        for twin in self.twins:
            for status in Status:
                found = [twin.number(job.id) for job in twin.ledger.list(status=status, queue=queue)]
                _same(f"{twin.name}: {status}", found, [j.id for j in jobs if (j.status, j.queue) == (status, queue)])
            for phase in Phase:
                found = [twin.number(job.id) for job in twin.ledger.list(phase=phase, queue=queue)]
                _same(f"{twin.name}: {phase}", found, [j.id for j in jobs if (j.phase, j.queue) == (phase, queue)])
            for name, phase in vocabulary.PHASE_ALIASES.items():
                found = [twin.number(job.id) for job in twin.ledger.list(status=[name, "queued"], queue=queue)]
                states = ((Status.RUNNING, phase), (Status.QUEUED, None))
                wanted = [j.id for j in jobs if (j.status, j.phase) in states and j.queue == queue]
                _same(f"{twin.name}: {name}", found, wanted)
            letters = [twin.number(job.id) for job in twin.ledger.dead_letters(queue=queue)]
            _same(f"{twin.name}: dead letters", letters, [job.id for job in self.model.dead_letters(queue=queue)])
            counts: dict[str, dict[str, int]] = {}
            for job in jobs:
                of_queue = counts.setdefault(job.queue, {})
                of_queue[job.status.value] = of_queue.get(job.status.value, 0) + 1
            _same(f"{twin.name}: counts", twin.ledger.counts(), counts)
            paused = {name: micros(at) for name, at in twin.ledger.paused().items()}
            _same(f"{twin.name}: paused", paused, self.model.paused_at)

    # Repeated requests

    @precondition(lambda self: self.named)
    @rule(place=picks)
    def again(self, place: int) -> None:
        verb, args, kwargs = self.named[-1 - place % len(self.named)]
        self.call_all(verb, *args, **kwargs)

    @precondition(lambda self: self.named)
    @rule(place=picks)
    def another_under_its_name(self, place: int) -> None:
        verb, args, kwargs = self.named[-1 - place % len(self.named)]
        match verb:
            case "enqueue":
                kwargs = kwargs | {"correlation_id": "another"}
            case "enqueue_many":
                args = ([*args[0], {"kind": "k"}],)
            case "on_jobs":
                kwargs = kwargs | {"reason": "another"}
            case "claim":
                kwargs = kwargs | {"limit": kwargs.get("limit", 1) + 1}
            case "complete":
                args = (args[0], "another")
            case "complete_many":
                args = (args[0][:-1],)
            case "heartbeat":
                kwargs = kwargs | {"progress": 77}
            case "pause" | "unpause":
                args = ("another",)
            case "set_policy":
                kwargs = kwargs | {"attempts_max": 77}
            case _:
                kwargs = kwargs | {"expected_rev": (kwargs.get("expected_rev") or 0) + 1}
        self.call_all(verb, *args, **kwargs)

    # Time

    @rule(step=steps)
    def pass_time(self, step: float) -> None:
        self.clock.advance(step)

    @rule(step=st.sampled_from([-3_600, -61, -10, -0.000001, 10, 61, 3_600]))
    def step_clock(self, step: float) -> None:
        self._jump(step)

    def _jump(self, step: float) -> None:
        if step < 0:
            self.left_at = max(self.left_at, self.clock.now())
        self.clock.jump(step)

    @precondition(has_job)
    @rule(place=picks, edge=edges)
    def wait_for_a_limit(self, place: int, edge: Any) -> None:
        job = self.model.jobs.get(self.pick(place % 15, HELD))
        if job is not None:
            self._wait(job, ("edge", edge))


def _edges(job: JobRecord) -> list[int]:
    """The time limits of a job."""
    found = [job.available_at] if job.status is Status.QUEUED and not job.is_waiting else []
    if job.status in HELD and job.lease_expires_at is not None:
        found += [stall_limit(job), job.lease_expires_at, *[at for at in [progress_limit(job)] if at is not None]]
    if job.status is Status.STALLED:
        found.append(resume_window_ends_at(job))
    if job.cancel_requested_at is not None and job.policy is not None and job.status in LIVE:
        found.append(job.cancel_requested_at + job.policy.cancel_grace_ms * 1_000)
    return found


CALM = settings(suppress_health_check=list(HealthCheck), deadline=None)


def _run(schema: ReusedSchema, home: Path, chosen: settings) -> None:
    class Here(ThreeWays):
        def __init__(self) -> None:
            super().__init__(schema, home)

    run_state_machine_as_test(Here, settings=chosen)


def test_the_stores_and_the_model_agree(reused_schema: ReusedSchema, tmp_path: Path) -> None:
    chosen = settings(CALM, max_examples=20, stateful_step_count=50)
    _run(reused_schema, tmp_path, chosen)


@pytest.mark.torture
@pytest.mark.timeout(3_600)
def test_the_stores_and_the_model_agree_for_long(reused_schema: ReusedSchema, tmp_path: Path) -> None:
    chosen = settings(CALM, max_examples=1_500, stateful_step_count=100)
    _run(reused_schema, tmp_path, chosen)
