"""The messages of each event type, and their contents."""

import msgspec
import pytest

from holdfast.core.model import SYSTEM, Actor, EventRecord, EventType, Policy, Role, Status
from holdfast.core.payloads import StalledPayload
from holdfast.services.messages import Topic, messages, topics
from holdfast.store.outbox import JobOrigin

WORKER = Actor(Role.WORKER, "w-1", "abc")
COVERED = Policy(requires_operator_coverage=True)
ORIGIN = JobOrigin("crawl", "index", "in_home")
AT = 1_767_225_600_000_001


def event(kind: EventType, before: Status | None, after: Status, **fields: object) -> EventRecord:
    given: dict[str, object] = {"actor": WORKER, "attempt": 1, "pos": 17, "correlation_id": "order-17"} | fields
    return EventRecord(
        job_id=42, rev=5, type=kind, received_at=AT, from_status=before, to_status=after, **given  # type: ignore[arg-type]
    )  # fmt: skip


STALL = StalledPayload(holder="w-1", incarnation="abc", last_beat_at=AT - 31_000_000, lease_expires_at=AT + 1, detected_at=AT)
SILENT = STALL.encode()


def stalled(policy: Policy, payload: bytes = SILENT, reason: str = "NO_HEARTBEAT") -> EventRecord:
    return event(EventType.STALLED, Status.RUNNING, Status.STALLED, actor=SYSTEM, reason=reason, policy=policy, payload=payload)


def beat(reason: str | None) -> EventRecord:
    return event(EventType.HEARTBEAT, Status.RUNNING, Status.RUNNING, reason=reason, payload=b'{"assist_requested":true}')


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (event(EventType.ENQUEUED, None, Status.QUEUED, payload=b"{}"), ["JOB_STATUS_CHANGED"]),
        (event(EventType.CLAIMED, Status.QUEUED, Status.CLAIMED, policy=COVERED), ["JOB_STATUS_CHANGED"]),
        (event(EventType.CANCEL_REQUESTED, Status.RUNNING, Status.RUNNING), []),
        (event(EventType.DISCARDED, Status.FAILED, Status.FAILED), []),
        (event(EventType.CANCELLED, Status.RUNNING, Status.CANCELLED, reason="ASSIST_REQUESTED"), ["JOB_STATUS_CHANGED"]),
        (stalled(Policy()), ["JOB_STATUS_CHANGED"]),
        (stalled(COVERED), ["JOB_STATUS_CHANGED", "ESCALATION_NEEDED"]),
        *(
            (stalled(COVERED, reason=reason), ["JOB_STATUS_CHANGED", "ESCALATION_NEEDED"])
            for reason in ("LEASE_EXPIRED", "NO_PROGRESS", "WORKER_ERROR")
        ),
        *(
            (stalled(COVERED, reason=reason), ["JOB_STATUS_CHANGED"])
            for reason in ("RELEASED", "TRANSIENT_ERROR", "OPERATOR_QUEUE_TIMEOUT")
        ),
        (beat(None), []),
        (beat("ASSIST_REQUESTED"), ["ESCALATION_NEEDED"]),
    ],
)
def test_an_event_gives_its_messages(given: EventRecord, expected: list[str]) -> None:
    assert topics(given) == expected


def test_a_message_is_a_cloud_event() -> None:
    changed, escalation = (message.as_dict() for message in messages(stalled(COVERED), "abcd2345", ORIGIN))

    assert changed == {
        "specversion": "1.0",
        "id": "42-5",
        "source": "/holdfast/abcd2345/jobs",
        "type": "dev.holdfast.job_status_changed.v1",
        "subject": "42",
        "time": "2026-01-01T00:00:00.000001Z",
        "datacontenttype": "application/json",
        "data": {
            "message": "JOB_STATUS_CHANGED",
            "job_id": 42,
            "rev": 5,
            "attempt": 1,
            "from": "running",
            "to": "stalled",
            "type": "stalled",
            "reason": "NO_HEARTBEAT",
            "actor": "system:ledger",
            "correlation_id": "order-17",
            "trace_id": None,
            "queue": "crawl",
            "kind": "index",
            "tier": "in_home",
            "position": 17,
            "text": "job 42 (index) stalled, attempt 1: NO_HEARTBEAT",
            "holder": "w-1",
            "incarnation": "abc",
            "last_beat_at": "2025-12-31T23:59:29.000001Z",
            "detected_at": "2026-01-01T00:00:00.000001Z",
            "silent_ms": 31_000,
            "policy": msgspec.to_builtins(COVERED) | {"stall_after_ms": 30_000},
        },
    }
    assert escalation == changed | {
        "source": "/holdfast/abcd2345/escalations",
        "type": "dev.holdfast.escalation_needed.v1",
        "data": changed["data"] | {"message": "ESCALATION_NEEDED", "commands": escalation["data"]["commands"]},
    }
    assert [each["command"] for each in escalation["data"]["commands"]] == ["holdfast explain 42", "holdfast job cancel 42"]


ERROR = b'{"type":"shop.Timeout","message":"password hunter2"}'
ODD = b'{"type":"password hunter2","message":"x"}'


@pytest.mark.parametrize(
    ("error", "include_payload", "text"),
    [
        (ERROR, False, "job 42 (index) retried, attempt 1: shop.Timeout"),
        (ERROR, True, "job 42 (index) retried, attempt 1: shop.Timeout: password hunter2"),
        (ODD, False, "job 42 (index) retried, attempt 1"),
        (b'"password hunter2"', False, "job 42 (index) retried, attempt 1"),
    ],
)
def test_a_retry_is_not_sent_as_a_stall(error: bytes, include_payload: bool, text: str) -> None:
    retried = stalled(COVERED, msgspec.structs.replace(STALL, error=msgspec.Raw(error)).encode(), reason="TRANSIENT_ERROR")
    [message] = messages(retried, "abcd2345", ORIGIN, include_payload=include_payload)
    assert (message.event.type, message.data.message) == ("dev.holdfast.job_retried.v1", "JOB_STATUS_CHANGED")
    assert message.data.text == text
    assert (b"hunter2" in message.body) == include_payload


def test_an_error_is_sent_only_with_payloads() -> None:
    failed = event(EventType.FAILED, Status.RUNNING, Status.FAILED, reason="permanent", payload=b'{"error":' + ERROR + b"}")
    [message] = messages(failed, "abcd2345", None)
    assert message.data.text == "job 42 failed, attempt 1: permanent"
    [message] = messages(failed, "abcd2345", None, include_payload=True)
    assert message.data.text == "job 42 failed, attempt 1: permanent: shop.Timeout: password hunter2"


def test_a_request_for_assistance_names_the_holder() -> None:
    [message] = messages(beat("ASSIST_REQUESTED"), "abcd2345", ORIGIN)
    data = message.as_dict()["data"]
    assert (data["holder"], data["incarnation"], data["tier"]) == ("w-1", "abc", "in_home")
    assert [each["command"] for each in data["commands"]][:2] == ["holdfast job assist 42", "holdfast explain 42"]
    assert "silent_ms" not in data


def test_message_keys_are_distinct_and_stable() -> None:
    keys = [message.key for message in messages(stalled(COVERED), "abcd2345", ORIGIN)]
    assert keys == ["msg_abcd2345_42-5_jobs", "msg_abcd2345_42-5_escalations"]
    assert [message.key for message in messages(stalled(COVERED), "abcd2345", None)] == keys
    assert "." not in "".join(keys), "the signature puts dots between its parts"


def test_a_first_event_contains_its_queue_and_kind() -> None:
    body = b'{"queue":"mail","kind":"send","args":{"to":"a secret"}}'
    first = event(EventType.ENQUEUED, None, Status.QUEUED, payload=body, attempt=0)

    [plain] = messages(first, "abcd2345", None)
    [whole] = messages(first, "abcd2345", None, include_payload=True)

    assert (plain.data.queue, plain.data.kind, plain.as_dict()["data"]["from"]) == ("mail", "send", None)
    assert b"secret" not in plain.body
    assert whole.as_dict()["data"]["payload"]["args"] == {"to": "a secret"}


def test_a_job_that_is_gone_has_no_queue() -> None:
    [message] = messages(stalled(Policy()), "abcd2345", None)
    assert message.as_dict()["data"]["queue"] is None
    assert message.data.message is Topic.JOB_STATUS_CHANGED
