"""Dialects: every name that is written is read too."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import HoldfastError, Ledger
from holdfast.core.model import EventType
from holdfast.core.vocabulary import DIALECTS, Dialect, event_name, has_name
from holdfast.ledger import dialects
from holdfast.proof.envelopes import robot_envelope, server_resume_envelope, server_stall_envelope, sign_envelope
from holdfast.proof.statements import EMPTY_SHA256, parse_statement
from holdfast.services import CallableSink, Message, Relay
from holdfast.services.messages import ADDED_FIELDS
from holdfast.testing import ManualClock
from tests.contract import builders as b
from tests.contract.builders import Made, refused
from tests.property.model import micros
from tests.support.near import near
from tests.support.signers import LIVENESS, SERVER, WORKER, enrol, opened

OTHERS = [dialect for dialect in Dialect if dialect is not Dialect.HOLDFAST]
NAMED = [(dialect, kind) for dialect in OTHERS for kind in EventType if has_name(dialect, kind)]
STATEMENT = ("type", "at", "actor", "payload", "binding")
"""The fields of an event in `liveness` that are signed if it is an envelope."""


def everything(ledger: Ledger) -> None:
    """Jobs with events of every type that any dialect has a name for, and of some others."""
    made = b.running(ledger, policy=b.WINDOW)
    ledger.heartbeat(made.fence, stage="TASK", progress=3, assist_requested=True, checkpoint={"page": 2})
    ledger.assist(made.id)
    ledger.heartbeat(made.fence)
    ledger.stall(made.fence, reason="WORKER_ERROR", error={"message": "a secret"})
    ledger.resume(made.fence)
    ledger.cancel(made.id, reason="spilled")
    ledger.heartbeat(made.fence)
    ledger.acknowledge_cancel(made.fence)
    ledger.complete(b.running(ledger).fence, {"answer": "a secret"})
    ledger.fail(b.running(ledger).fence, "a secret", retryable=False)
    dead = b.queued(ledger)
    ledger.dead_letter(dead.id, reason_code="timeout", failure_stage="exec", error={"message": "a secret"})
    ledger.annotate(dead.id, "compensated")
    for way in ("replace", "postpone", "replace"):
        ledger.enqueue("index_page", {"n": 2}, queue="keyed", dedupe_key="k", delay="10s", on_duplicate=way)
    [keyed] = ledger.list(queue="keyed")
    ledger.reprioritise(keyed.id, 5)


def translated_events(ledger: Ledger, dialect: Dialect) -> list[dict[str, Any]]:
    """All events in the dialect, as a reader of their JSON gets them."""
    translated: list[dict[str, Any]] = json.loads(json.dumps(ledger.in_dialect(ledger.events(), dialect)))
    return translated


def test_every_event_can_be_written_in_every_dialect(ledger: Ledger):
    everything(ledger)
    events = ledger.events()
    assert {kind for names in DIALECTS.values() for _, kind in names.events} <= {event.type for event in events}
    for dialect in OTHERS:
        translated = translated_events(ledger, dialect)
        assert [(line["id"], line["type"]) for line in translated] == [
            (event.id, event_name(dialect, event.type)) for event in events
        ]
        name = {Dialect.LIVENESS: "jobId", Dialect.JOBS: "job_id", Dialect.TASKS: "task_id"}[dialect]
        assert [int(line[name]) for line in translated] == [event.job_id for event in events]


def test_events_are_found_by_their_names_in_a_dialect(ledger: Ledger):
    everything(ledger)
    for dialect, kind in NAMED:
        own = ledger.events(types=[kind.value])
        [name] = {line["type"] for line in translated_events(ledger, dialect) if line["id"] in {event.id for event in own}}
        assert name != kind.value
        assert ledger.events(types=[name]) == own


def test_statuses_are_written_with_the_names_of_the_dialect(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    everything(ledger)
    first = [event for event in ledger.events() if event.job_id == ledger.events()[0].job_id]
    translated = {dialect: ledger.in_dialect(first, dialect) for dialect in OTHERS}
    assert [(line["type"], line["fromStatus"], line["toStatus"]) for line in translated[Dialect.LIVENESS]] == [
        ("enqueued", None, "queued"),
        ("claimed", "queued", "claimed"),
        ("started", "claimed", "EXECUTING"),
        ("JOB_HEARTBEAT", "EXECUTING", "EXECUTING"),
        ("assist_started", "EXECUTING", "ASSISTED"),
        ("JOB_HEARTBEAT", "ASSISTED", "ASSISTED"),
        ("JOB_EXECUTION_STALLED", "ASSISTED", "STALLED"),
        ("JOB_EXECUTION_RESUMED", "STALLED", "EXECUTING"),
        ("cancel_requested", "EXECUTING", "ABORTING_SAFE_EXIT"),
        ("JOB_HEARTBEAT", "ABORTING_SAFE_EXIT", "ABORTING_SAFE_EXIT"),
        ("cancelled", "ABORTING_SAFE_EXIT", "cancelled"),
    ]
    assert [line["to_status"] for line in translated[Dialect.JOBS]] == [
        "queued", "assigned", "running", "running", "running", "running", "orphaned", "running", "running", "running", "cancelled"
    ]  # fmt: skip
    assert {line["to_status"] for line in translated[Dialect.TASKS]} == {
        "queued",
        "claimed",
        "in_progress",
        "stalled",
        "cancelled",
    }
    assert translated[Dialect.LIVENESS][6]["reason"] == "ROBOT_ERROR"
    alone = [ledger.in_dialect([event], Dialect.LIVENESS)[0] for event in first]
    assert alone == translated[Dialect.LIVENESS], "the same event, alone or with others"
    monkeypatch.setattr(dialects, "PAGE_MAX", 2)
    assert ledger.in_dialect(first, Dialect.LIVENESS) == translated[Dialect.LIVENESS], "however long the job's history is"


def test_an_event_has_the_form_of_document_002(ledger: Ledger, clock: ManualClock):
    job = ledger.enqueue("index", correlation_id="order-17")
    ledger.claim("w-1", start=True)
    event = ledger.events()[-1]
    [translated] = ledger.in_dialect([event], "jobs")
    assert list(translated)[:9] == ["id", "job_id", "type", "ts", "actor", "correlation_id", "cause", "payload", "version"]
    assert (translated["id"], translated["job_id"], translated["type"]) == (f"{job.id}-3", job.id, "job_started")
    assert translated["ts"] == clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert (translated["actor"], translated["correlation_id"]) == (event.actor, "order-17")


def test_an_event_has_the_form_of_document_004(ledger: Ledger):
    job = ledger.enqueue("review")
    [held] = ledger.claim("ada", start=True)
    ledger.heartbeat(held.fence, progress=4)
    claimed, beaten = ledger.in_dialect(ledger.events(types=["task_claimed", "task_heartbeat"]), "tasks")
    assert (claimed["task_id"], claimed["payload"]["claimed_by"], claimed["payload"]["attempt"]) == (job.id, "ada", 1)
    assert claimed["payload"]["claimed_at"] == claimed["payload"]["last_heartbeat_at"] == claimed["at"]
    assert beaten["payload"] == {"claimed_by": "ada", "attempt": 1, "last_heartbeat_at": beaten["at"], "progress": 4}


# Envelopes


@pytest.fixture
def edge(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """A ledger with the server's key and without the keys of workers."""
    with opened(store_url, clock) as ledger:
        enrol(ledger)
    with opened(store_url, clock, [SERVER]) as ledger:
        yield ledger


def beat(ledger: Ledger, made: Made, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "ledger_id": ledger.id,
        "job_id": made.id,
        "attempt": made.fence.attempt,
        "robot": "w-1",
        "incarnation": made.fence.incarnation,
        "counter": 1,
        "at": micros(ledger.now()),
    }
    assert WORKER.secret is not None
    return robot_envelope(WORKER.secret, **given | changes)


def verdict(ledger: Ledger, made: Made) -> dict[str, Any]:
    job = ledger.get(made.id).record
    assert job.policy is not None and job.last_beat_at is not None and SERVER.secret is not None
    return server_stall_envelope(
        SERVER.secret, ledger_id=ledger.id, job_id=made.id, attempt=made.fence.attempt, rev=job.rev + 1, server="hq", robot="w-1",
        at=micros(ledger.now()), last_beat_at=job.last_beat_at, heartbeat_interval_ms=job.policy.heartbeat_interval_ms,
        stall_after_ms=job.policy.stall_after_ms,
    )  # fmt: skip


def seen_again(ledger: Ledger, made: Made) -> dict[str, Any]:
    assert SERVER.secret is not None
    return server_resume_envelope(
        SERVER.secret, ledger_id=ledger.id, job_id=made.id, attempt=made.fence.attempt, rev=ledger.get(made.id).rev + 1,
        server="hq", robot="w-1", at=micros(ledger.now()),
    )  # fmt: skip


def test_an_envelope_is_written_as_it_was_received(edge: Ledger, clock: ManualClock):
    made = b.running(edge, policy=LIVENESS | b.WINDOW)
    clock.advance(5)
    content = {"stage": "TASK", "progress": 3, "assist_requested": False}
    sent = [beat(edge, made, **content)]
    edge.append(sent[0])
    clock.advance(31)
    sent.append(verdict(edge, made))
    edge.append(sent[1])
    sent.append(beat(edge, made, kind=EventType.RESUMED, counter=2))
    edge.append(sent[2])
    clock.advance(31)
    sent.append(verdict(edge, made))
    edge.append(sent[3])
    clock.advance(1)
    sent.append(beat(edge, made, counter=3, **content))
    edge.append(sent[4])
    sent.append(seen_again(edge, made))
    edge.append(sent[5])

    lines = [line for line in translated_events(edge, Dialect.LIVENESS) if line["type"].startswith("JOB_")]

    for line, envelope in zip(lines, sent, strict=True):
        assert {name: line[name] for name in STATEMENT} == {name: envelope[name] for name in STATEMENT}
        assert (line["keyId"], line["signature"]) == (envelope["keyId"], envelope["signature"])
        said = parse_statement({name: line[name] for name in STATEMENT})
        assert said == parse_statement(json.loads(line["statement"]))


def own_beat(ledger: Ledger, made: Made, job_id: Any) -> dict[str, Any]:
    """A beat in Holdfast's own form, not signed yet."""
    return {
        "v": 1,
        "ledger": ledger.id,
        "job": job_id,
        "attempt": made.fence.attempt,
        "type": "heartbeat",
        "actor": f"worker:w-1#{made.fence.incarnation}",
        "counter": 2,
        "at": micros(ledger.now()),
        "payload": EMPTY_SHA256,
    }


@pytest.mark.parametrize("as_text", [False, True], ids=["number", "digits"])
def test_envelopes_accept_job_ids_as_numbers_or_digits(edge: Ledger, as_text: bool):
    made = b.running(edge, policy=LIVENESS)
    assert WORKER.secret is not None
    given = str(made.id) if as_text else made.id

    robots = {name: value for name, value in beat(edge, made).items() if name in STATEMENT}
    robots["payload"] = robots["payload"] | {"jobId": given}
    assert edge.append(sign_envelope(robots, WORKER.secret)).job_id == made.id

    assert edge.append(sign_envelope(own_beat(edge, made, given), WORKER.secret)).job_id == made.id
    assert edge.check(made.id) == []


@pytest.mark.parametrize("given", ["", "07", "-7", "7.0", "job_7", " 7", True, 7.5, None, 2**63])
def test_other_job_ids_are_refused(edge: Ledger, given: Any):
    made = b.running(edge, policy=LIVENESS)
    assert WORKER.secret is not None
    with pytest.raises(HoldfastError) as caught:
        edge.append(sign_envelope(own_beat(edge, made, given), WORKER.secret))
    assert caught.value.code in {"validation_error", "limit_exceeded"}
    assert edge.events(made.id)[-1].type == "started"


def test_a_stall_by_the_sweep_names_the_robot(ledger: Ledger, clock: ManualClock):
    made = b.running(ledger, tier="in_home")
    clock.advance(91)
    ledger.sweep()
    [event] = ledger.events(made.id, types=["JOB_EXECUTION_STALLED"])
    [translated] = ledger.in_dialect([event], "liveness")
    assert translated["actor"] == {"type": "server", "id": "ledger"}
    payload = translated["payload"]
    assert list(payload) == ["jobId", "robotId", "detectedAt", "reason", "lastHeartbeatAt", "policy"]
    assert (payload["jobId"], payload["robotId"], payload["detectedAt"]) == (str(made.id), "w-1", translated["at"])
    assert (payload["reason"], payload["policy"]) == (event.reason, {"heartbeatIntervalMs": 30_000, "stallAfterMs": 90_000})
    assert parse_statement({name: translated[name] for name in STATEMENT}).robot == "w-1"


def test_the_holder_in_a_stall_is_written_as_the_robot(ledger: Ledger):
    made = b.running_stalled(ledger)
    [event] = ledger.events(made.id, types=["stalled"])
    named = msgspec.structs.replace(event, payload=event.payload | {"holder": "rob_1", "detected_at": micros(event.at)})
    [translated] = ledger.in_dialect([named], "liveness")
    assert (translated["payload"]["robotId"], translated["payload"]["detectedAt"]) == ("rob_1", translated["at"])
    assert not {"holder", "detected_at", "last_beat_at"} & translated["contents"].keys()


# Sinks


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_sink_gets_events_in_its_dialect(ledger: Ledger, dialect: Dialect):
    received: list[Message] = []
    relay = Relay(
        near(ledger), [CallableSink(received.append, name="other", start="beginning", dialect=dialect, include_payload=True)]
    )
    everything(ledger)
    while relay.tick():
        pass
    by_id = {line["id"]: line for line in translated_events(ledger, dialect)}
    assert len(received) > len(EventType) - 7
    for message in received:
        document = message.as_dict()["data"]
        beside = {name: document.pop(name, None) for name in ADDED_FIELDS}
        assert (beside["message"], beside["queue"], beside["kind"]) == (message.data.message, message.data.queue, "index_page")
        assert (beside["silent_ms"] is None) == (message.data.type != "stalled")
        assert document == by_id[message.event.id]
    assert {message.data.type for message in received} <= set(EventType), "in Holdfast's words for those who ask in Python"


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_sink_without_payloads_gets_no_secret(ledger: Ledger, dialect: Dialect):
    received: list[Message] = []
    relay = Relay(near(ledger), [CallableSink(received.append, name="other", start="beginning", dialect=dialect)])
    everything(ledger)
    while relay.tick():
        pass
    bodies = b"".join(message.body for message in received)
    assert received and b"secret" not in bodies and b'"n"' not in bodies and b'"page"' not in bodies
    if dialect is Dialect.LIVENESS:
        [stall] = [message.as_dict()["data"] for message in received if message.data.type is EventType.STALLED]
        assert (stall["payload"]["robotId"], stall["payload"]["reason"]) == ("w-1", "ROBOT_ERROR")


# Refused


def test_there_are_four_dialects(ledger: Ledger):
    for wrong in ("klingon", "", None, 7):
        with refused("validation_error"):
            ledger.in_dialect([], wrong)  # type: ignore[arg-type]
        with refused("validation_error"):
            CallableSink(print, dialect=wrong)
    with refused("validation_error"):
        ledger.in_dialect([7], "jobs")  # type: ignore[list-item]
    assert ledger.in_dialect(ledger.events(), "holdfast") == []
