"""A server's envelopes for a stalled and for a resumed robot, in the form for robots."""

from typing import Any

import pytest

from holdfast.core.model import Actor, EventType, Role
from holdfast.errors import HoldfastError
from holdfast.proof.encoding import canonical, from_iso
from holdfast.proof.envelopes import read_envelope, server_resume_envelope, server_stall_envelope
from holdfast.proof.keys import SecretKey, verify
from holdfast.proof.statements import read_statement, statement_message

SERVER = SecretKey(bytes(range(32)))
AT, SILENT = "2026-01-26T00:05:00.000Z", "2026-01-26T00:01:00.000Z"
SEED: dict[str, Any] = {
    "type": "JOB_EXECUTION_STALLED",
    "at": AT,
    "actor": {"type": "server", "id": "hq"},
    "payload": {
        "jobId": "123",
        "robotId": "rob_1",
        "detectedAt": AT,
        "reason": "NO_HEARTBEAT",
        "lastHeartbeatAt": SILENT,
        "policy": {"heartbeatIntervalMs": 60_000, "stallAfterMs": 180_000},
    },
    "binding": {"ledger": "8f2e", "attempt": 2, "rev": 9},
}
SIGNATURE = "+cxQXyOoQYjsFvXdtP429z61LPJqDH4AURF69ttddlCarscd2Qfm+yJbMXa+Nxae0sPjku2qTk8TMUeDxB0WBQ=="


def changed(path: str, value: Any) -> bytes:
    *folders, last = path.split(".")
    found: dict[str, Any] = {name: dict(part) if isinstance(part, dict) else part for name, part in SEED.items()}
    place = found
    for folder in folders:
        place = place[folder]
    place[last] = value
    return canonical(found)


def test_the_documents_own_example_is_read():
    said = read_statement(canonical(SEED))
    assert (said.type, said.actor, said.job_id, said.attempt, said.rev, said.counter) == (
        EventType.STALLED,
        Actor(Role.SYSTEM, "hq"),
        123,
        2,
        9,
        None,
    )
    assert (said.robot, said.reason, said.thresholds_ms, said.shape) == ("rob_1", "NO_HEARTBEAT", (60_000, 180_000), "seed")
    assert (said.at, said.last_beat_at) == (from_iso("at", AT), from_iso("at", SILENT))


def test_a_servers_envelope_has_exact_bytes():
    given = {"ledger_id": "8f2e", "job_id": 123, "attempt": 2, "rev": 9, "server": "hq", "robot": "rob_1"}
    times = {"at": from_iso("at", AT), "last_beat_at": from_iso("at", SILENT)}
    envelope = server_stall_envelope(SERVER, heartbeat_interval_ms=60_000, stall_after_ms=180_000, **given, **times)  # type: ignore[arg-type]
    assert envelope == SEED | {"keyId": "56475aa75463474c", "signature": SIGNATURE}
    statement, _, signature = read_envelope(envelope)
    assert statement == canonical(SEED)
    assert verify(SERVER.public_key, statement_message(statement), signature)


def test_the_reason_robot_error_is_read_as_worker_error():
    assert read_statement(changed("payload.reason", "ROBOT_ERROR")).reason == "WORKER_ERROR"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("payload.detectedAt", SILENT),
        ("payload.reason", "BORED"),
        ("payload.lastHeartbeatAt", "yesterday"),
        ("payload.jobId", "job_123"),
        ("payload.extra", 1),
        ("payload.policy", {"heartbeatIntervalMs": 60_000}),
        ("actor.type", "robot"),
        ("binding.rev", 0),
        ("binding.counter", 1),
    ],
)
def test_a_stall_report_is_read_strictly(path: str, value: Any):
    with pytest.raises(HoldfastError):
        read_statement(changed(path, value))


HEARD: dict[str, Any] = {
    "type": "JOB_EXECUTION_RESUMED",
    "at": AT,
    "actor": {"type": "server", "id": "hq"},
    "payload": {"jobId": "123", "robotId": "rob_1", "t": AT},
    "binding": {"ledger": "8f2e", "attempt": 2, "rev": 9},
}


def test_a_server_resumes_a_robot():
    said = read_statement(canonical(HEARD))
    assert (said.type, said.actor, said.robot, said.rev, said.counter) == (
        EventType.RESUMED,
        Actor(Role.SYSTEM, "hq"),
        "rob_1",
        9,
        None,
    )
    given = {"ledger_id": "8f2e", "job_id": 123, "attempt": 2, "rev": 9, "server": "hq", "robot": "rob_1"}
    envelope = server_resume_envelope(SERVER, at=from_iso("at", AT), **given)  # type: ignore[arg-type]
    assert read_envelope(envelope).statement == canonical(HEARD)


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": HEARD["payload"] | {"t": SILENT}},
        {"payload": HEARD["payload"] | {"stage": "TASK"}},
        {"payload": HEARD["payload"] | {"jobId": "job_123"}},
        {"binding": HEARD["binding"] | {"rev": 0}},
        {"binding": {"ledger": "8f2e", "attempt": 2, "incarnation": "boot-1", "counter": 1}},
        {"actor": {"type": "robot", "id": "rob_1"}},
        {"actor": "server"},
    ],
)
def test_a_resume_report_is_read_strictly(changes: dict[str, Any]):
    with pytest.raises(HoldfastError):
        read_statement(canonical(HEARD | changes))
