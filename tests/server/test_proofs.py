"""Proofs: a holder's signature is sent beside the body of its command, and no other signature is accepted."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from holdfast import Ledger
from holdfast.proof.encoding import canonical
from holdfast.proof.keys import KeyFile
from holdfast.proof.statements import statement_message
from holdfast.testing import ManualClock
from tests.property.model import micros
from tests.support.server import Answer, Client, RunningServer
from tests.support.signers import OPERATOR, SERVER, WORKER, enrol, key, opened

GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
NEIGHBOUR = key("worker", "w-2")


@pytest.fixture
def ledger(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """A ledger with the keys of workers and operators enrolled. Only that of the server is here."""
    with opened(store_url, clock, [SERVER]) as ledger:
        enrol(ledger, (SERVER, OPERATOR, WORKER, NEIGHBOUR))
        yield ledger


class Held(NamedTuple):
    """A running job of the worker w-1."""

    id: int
    fence: dict[str, Any]
    ledger: Ledger

    def proof(self, kind: str, payload: bytes = b"", *, signer: KeyFile = WORKER, counter: int = 1, **changes: Any) -> Any:
        """Return what a holder signs, as a program without Holdfast would make it. `changes` forge it."""
        fields = {
            "v": 1,
            "ledger": self.ledger.id,
            "job": self.id,
            "attempt": 1,
            "type": kind,
            "actor": "worker:w-1#boot1",
            "at": micros(self.ledger.now()),
            "payload": sha256(payload).hexdigest(),
            "counter": counter,
        } | changes
        statement = canonical(fields)
        assert signer.secret is not None
        signature = b64encode(signer.secret.sign(statement_message(statement))).decode()
        return {"key_id": signer.key_id, "signature": signature, "statement": statement.decode()}


@pytest.fixture
def held(ledger: Ledger, worker: Client) -> Held:
    return _held(ledger, worker)


def _held(ledger: Ledger, worker: Client) -> Held:
    job = ledger.enqueue("weld", policy={"signed": "all", "resume_window": "60s"})
    answer = worker.post("/v1/claims", {"queues": ["default"], "start": True})
    [view] = answer.data["jobs"]
    assert view["id"] == job.id
    return Held(job.id, view["fence"], ledger)


def _refused(answer: Answer, why: str) -> None:
    assert (answer.status, answer.data["code"]) == (403, "signature_invalid"), answer.body
    assert answer.data["context"]["why"] == why, answer.data


COMMANDS: list[tuple[str, dict[str, Any], str, bytes, dict[str, Any]]] = [
    ("heartbeat", {}, "heartbeat", b"", {}),
    ("heartbeat", {"stage": "A", "progress": 2}, "heartbeat", b'{"stage":"A","progress":2}', {}),
    ("heartbeat", {"checkpoint": {"n": 1}}, "heartbeat", b'{"checkpoint":{"n":1}}', {}),
    ("complete", {"result": {"n": 1}}, "succeeded", b'{"result":{"n":1}}', {}),
    ("complete", {"result": None, "gate": True}, "succeeded", b'{"result":null}', {}),
    ("fail", {"error": {"message": "x"}}, "failed", b'{"error":{"message":"x"}}', {}),
    (
        "fail",
        {"error": {"message": "x"}, "retryable": False, "reason_code": "parse_error"},
        "failed",
        b'{"error":{"message":"x"}}',
        {"reason": "parse_error"},
    ),
    ("release", {"reason": "low battery"}, "requeued", b"", {"reason": "low battery"}),
    ("stall", {}, "stalled", b"", {"reason": "WORKER_ERROR"}),
    ("stall", {"error": {"message": "hot"}}, "stalled", b'{"error":{"message":"hot"}}', {"reason": "WORKER_ERROR"}),
]


@pytest.mark.parametrize(("verb", "body", "kind", "payload", "stated"), COMMANDS)
def test_a_command_is_recorded_with_its_proof(
    held: Held, worker: Client, ledger: Ledger, verb: str, body: Any, kind: str, payload: bytes, stated: Any
) -> None:
    path = f"/v1/jobs/{held.id}/{verb}"
    _refused(worker.post(path, {"fence": held.fence, **body}), "missing")
    proof = held.proof(kind, payload, **stated)
    # The signed hash is that of the content as it is sent.
    compact = json.dumps({"fence": held.fence, "proof": proof, **body}, separators=(",", ":")).encode()
    done = worker.send("POST", path, raw=compact)
    assert done.status == 200, done.body
    event = ledger.events(held.id)[-1]
    assert (event.key_id, event.statement, event.signature) == (proof["key_id"], proof["statement"], proof["signature"])
    assert ledger.check(held.id) == []


def test_a_holder_resumes_and_acknowledges_with_a_proof(held: Held, worker: Client, ledger: Ledger) -> None:
    path = f"/v1/jobs/{held.id}"
    proof = held.proof("stalled", reason="WORKER_ERROR")
    assert worker.post(f"{path}/stall", {"fence": held.fence, "proof": proof}).status == 200
    proof = held.proof("resumed", counter=2)
    assert worker.post(f"{path}/resume", {"fence": held.fence, "proof": proof}).data["job"]["status"] == "running"
    assert ledger.check(held.id) == []


def test_a_proof_may_stand_for_the_token(held: Held, worker: Client, ledger: Ledger) -> None:
    fence = {"attempt": 1, "token": ""}
    path = f"/v1/jobs/{held.id}/heartbeat"
    assert worker.post(path, {"fence": fence, "proof": held.proof("heartbeat")}).status == 200
    assert worker.post(path, {"fence": fence}).data["code"] == "fence_lost"


def test_each_command_of_a_batch_has_its_own_proof(held: Held, worker: Client, ledger: Ledger) -> None:
    other, third = _held(ledger, worker), _held(ledger, worker)
    beats = [
        {"fence": held.fence, "stage": "A", "proof": held.proof("heartbeat", b'{"stage":"A"}')},
        {"fence": other.fence, "proof": held.proof("heartbeat")},
        {"fence": third.fence, "proof": third.proof("heartbeat")},
    ]
    answers = worker.post("/v1/heartbeats", {"fences": [third.fence], "beats": beats}).data["answers"]
    assert [answer.get("problem", {}).get("context", {}).get("why") for answer in answers] == ["missing", None, "job", None]
    completions = [
        {"fence": held.fence, "result": 1, "proof": held.proof("succeeded", b'{"result":2}', counter=2)},
        {"fence": other.fence, "result": 1, "proof": other.proof("succeeded", b'{"result":1}', counter=2)},
        {"fence": third.fence, "result": 1},
    ]
    answers = worker.post("/v1/completions", {"completions": completions}).data["answers"]
    assert [answer.get("problem", {}).get("context", {}).get("why") for answer in answers] == ["payload", None, "missing"]
    ends = {
        "completions": [{"fence": third.fence, "result": 1, "proof": third.proof("succeeded", b'{"result":1}', counter=4)}],
        "beats": [{"fence": third.fence, "progress": 9, "proof": third.proof("heartbeat", b'{"progress":9}', counter=3)}],
        "settle": True,
    }
    assert worker.post("/v1/completions", ends).data["answers"] == [{}]
    assert ledger.get(third.id).progress == 9
    assert [ledger.check(one.id) for one in (held, other, third)] == [[], [], []]


# Refused


FORGERIES: list[tuple[dict[str, Any], str]] = [
    ({"job": 99}, "job"),
    ({"attempt": 2}, "attempt"),
    ({"ledger": "another"}, "ledger"),
    ({"type": "succeeded"}, "type"),
    ({"payload": b"x"}, "payload"),
    ({"reason": "why not", "type": "requeued"}, "type"),
    ({"actor": "worker:w-1#boot2"}, "actor"),
    ({"actor": "worker:w-2#boot1", "signer": NEIGHBOUR}, "actor"),
    ({"signer": NEIGHBOUR}, "key"),
    ({"signer": OPERATOR}, "key"),
    ({"signer": SERVER}, "key"),
    ({"signer": key("worker", "w-1", 2)}, "key"),
    ({"actor": "operator:ann", "signer": OPERATOR}, "actor"),
    ({"at": 1_000_000}, "skew"),
    ({"counter": 4_000_000_000_000_000}, "counter"),
]


@pytest.mark.parametrize(("forged", "why"), FORGERIES)
def test_a_statement_about_something_else_changes_nothing(
    held: Held, worker: Client, ledger: Ledger, forged: Any, why: str
) -> None:
    before = ledger.get(held.id), ledger.events()
    answer = worker.post(
        f"/v1/jobs/{held.id}/heartbeat", {"fence": held.fence, "proof": held.proof(**{"kind": "heartbeat"} | forged)}
    )
    _refused(answer, why)
    assert (ledger.get(held.id), ledger.events()) == before


def test_a_proof_is_used_once(held: Held, worker: Client, ledger: Ledger) -> None:
    path, body = f"/v1/jobs/{held.id}/heartbeat", {"fence": held.fence, "proof": held.proof("heartbeat", counter=7)}
    assert worker.post(path, body).status == 200
    before = ledger.events()
    _refused(worker.post(path, body), "counter")
    _refused(worker.post(path, {"fence": held.fence, "proof": held.proof("heartbeat", counter=6)}), "counter")
    assert ledger.events() == before


def test_a_signature_with_another_encoding_is_refused(held: Held, worker: Client, ledger: Ledger) -> None:
    before = ledger.events()
    proof = held.proof("heartbeat")
    signature = b64decode(proof["signature"])
    scalar = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    malleable = b64encode(signature[:32] + scalar.to_bytes(32, "little")).decode()
    flipped = b64encode(signature[:-1] + bytes([signature[-1] ^ 1])).decode()
    path = f"/v1/jobs/{held.id}/heartbeat"
    for changed in (malleable, flipped):
        _refused(worker.post(path, {"fence": held.fence, "proof": proof | {"signature": changed}}), "signature")
    for field, text in (("signature", "AAAA"), ("key_id", "zz"), ("statement", "{}"), ("statement", proof["statement"] + " ")):
        answer = worker.post(path, {"fence": held.fence, "proof": proof | {field: text}})
        assert (answer.status, answer.data["code"]) == (400, "validation_error")
    assert ledger.events() == before


@pytest.mark.parametrize("public", ["00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 31 + "80"])
def test_a_key_of_small_order_cannot_be_enrolled(admin: Client, public: str) -> None:
    answer = admin.post("/v1/keys", {"public": public, "role": "worker", "name": "w-9"})
    assert (answer.status, answer.data["code"]) == (400, "validation_error")


def test_the_key_of_another_worker_does_not_help(held: Held, served: RunningServer, ledger: Ledger) -> None:
    thief = served.client("worker", "w-2").acting(Holdfast_Incarnation="boot1")
    proof = held.proof("heartbeat", actor="worker:w-2#boot1", signer=NEIGHBOUR)
    answer = thief.post(f"/v1/jobs/{held.id}/heartbeat", {"fence": {"attempt": 1, "token": ""}, "proof": proof})
    assert (answer.status, answer.data["code"]) == (409, "fence_lost")
    answer = thief.post(f"/v1/jobs/{held.id}/heartbeat", {"fence": {"attempt": 1, "token": ""}, "proof": held.proof("heartbeat")})
    _refused(answer, "actor")


def test_a_proof_without_a_fence_is_refused(held: Held, served: RunningServer) -> None:
    operator = served.client("operator", "ann")
    answer = operator.post(f"/v1/jobs/{held.id}/stall", {"proof": held.proof("stalled", reason="WORKER_ERROR")})
    assert (answer.status, answer.data["context"]["field"]) == (400, "proof")


def test_a_server_signs_for_no_worker(store_url: str, clock: ManualClock) -> None:
    """A key of a worker that the server was started with is not used."""
    from tests.support.server import running

    with opened(store_url, clock) as ledger:
        enrol(ledger)
        with running(ledger) as server:
            worker = server.client("worker", "w-1").acting(Holdfast_Incarnation="boot1")
            held = _held(ledger, worker)
            answer = worker.post(f"/v1/jobs/{held.id}/heartbeat", {"fence": held.fence})
            _refused(answer, "missing")
            assert "the server has no key of worker 'w-1'" in answer.data["detail"]


# Events that are sent as they were signed


def test_an_event_is_recorded_as_it_was_signed(held: Held, worker: Client, ledger: Ledger) -> None:
    proof = held.proof("heartbeat", b'{"progress":3}')
    envelope = json.loads(proof["statement"]) | {"keyId": proof["key_id"], "signature": proof["signature"]}
    sent = worker.post(f"/v1/jobs/{held.id}/events", {"envelope": envelope, "content": {"progress": 3}})
    assert (sent.status, sent.data["event"]["type"], sent.data["event"]["statement"]) == (201, "heartbeat", proof["statement"])
    assert ledger.get(held.id).progress == 3
    again = worker.post(f"/v1/jobs/{held.id}/events", {"envelope": envelope, "content": {"progress": 3}})
    assert (again.status, again.headers["idempotent-replayed"], again.data) == (200, "true", sent.data)


def test_an_event_of_another_job_or_worker_is_refused(held: Held, worker: Client, served: RunningServer) -> None:
    proof = held.proof("heartbeat")
    envelope = json.loads(proof["statement"]) | {"keyId": proof["key_id"], "signature": proof["signature"]}
    _refused(worker.post(f"/v1/jobs/{held.id + 1}/events", envelope), "job")
    other = served.client("worker", "w-2")
    assert other.post(f"/v1/jobs/{held.id}/events", envelope).data["code"] == "forbidden"
    assert worker.post(f"/v1/jobs/{held.id}/events", [1]).status == 400
    assert worker.post(f"/v1/jobs/{held.id}/events", {"envelope": 7}).status == 400
