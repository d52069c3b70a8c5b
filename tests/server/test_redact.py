"""Contents are hidden from readers by patterns, and all else keeps its bytes."""

from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.errors import HoldfastError
from holdfast.server.redact import Redaction
from holdfast.shapes import job_view

SECRETS = Redaction(["*.password", "args.card", "result.token*", "error.message"])


@pytest.mark.parametrize(
    ("root", "body", "shown"),
    [
        ("args", b'{"card":"4111"}', b'{"card":"[redacted]"}'),
        ("args", b'{"card":{"number":"4111"}}', b'{"card":"[redacted]"}'),
        ("args", b'{"user":{"password":"x","name":"kim"}}', b'{"user":{"password":"[redacted]","name":"kim"}}'),
        (
            "args",
            b'{"users":[{"password":1},{"a":1.50},[{"password":null}]]}',
            b'{"users":[{"password":"[redacted]"},{"a":1.50},[{"password":"[redacted]"}]]}',
        ),
        ("args", b'{"pass\\u0077ord":"x"}', b'{"password":"[redacted]"}'),
        ("args", b' {"password": "x", "n": 1e2}', b'{"password":"[redacted]","n":1e2}'),
        ("result", b'{"token_id":7,"card":1}', b'{"token_id":"[redacted]","card":1}'),
        ("last_error", b'{"message":"card 4111","type":"E"}', b'{"message":"[redacted]","type":"E"}'),
        ("payload", b'{"queue":"q","args":{"card":1}}', b'{"queue":"q","args":{"card":"[redacted]"}}'),
        ("payload", b'{"undo":{"kind":"k","args":{"card":1}}}', b'{"undo":{"kind":"k","args":{"card":"[redacted]"}}}'),
        ("payload", b'{"last_error":{"message":"x"}}', b'{"last_error":{"message":"[redacted]"}}'),
    ],
)
def test_values_at_matching_paths_are_hidden(root: str, body: bytes, shown: bytes) -> None:
    assert SECRETS.json(root, body) == shown


KEPT = [
    b'{ "a" : 1.0, "b":[1e3, {"c" : "p\\u0061ssword"}] }',
    b"null",
    b"7",
    b'"password"',
    b"[]",
    b"{}",
    b"",
    b"not json",
    b"{x",
]


@pytest.mark.parametrize("body", KEPT)
def test_json_without_a_match_keeps_its_bytes(body: bytes) -> None:
    assert SECRETS.json("args", body) == body


def test_a_whole_field_can_be_hidden() -> None:
    assert Redaction(["args"]).json("args", b'{"a":1}') == b'"[redacted]"'
    assert Redaction(["checkpoint*"]).json("checkpoint", b"[1]") == b'"[redacted]"'
    assert Redaction(["*"]).json("result", b"1") == b'"[redacted]"'


def test_the_view_of_a_job_is_redacted(ledger: Ledger) -> None:
    job = ledger.enqueue("pay", {"card": "4111", "password": "x", "n": 1})
    [held] = ledger.claim("w", start=True)
    ledger.heartbeat(held.fence, checkpoint={"deep": {"password": "x"}})
    ledger.fail(held.fence, {"message": "card 4111"}, retryable=False)
    for raw in (False, True):
        view = job_view(ledger.get(job.id), raw=raw)
        shown = msgspec.json.decode(msgspec.json.encode(SECRETS.fields(view)))
        assert shown["args"] == {"card": "[redacted]", "password": "[redacted]", "n": 1}
        assert shown["checkpoint"] == {"deep": {"password": "[redacted]"}}
        assert shown["error"] == shown["last_error"] == {"message": "[redacted]"}
        assert (shown["kind"], shown["id"]) == ("pay", job.id)
        assert b"4111" in msgspec.json.encode(view)
    text = msgspec.json.encode([*map(SECRETS.fields, ledger.events(job.id))])
    assert b"4111" not in text and b'"x"' not in text


def test_a_view_without_a_match_is_the_same_object(ledger: Ledger) -> None:
    view = job_view(ledger.enqueue("pay", {"n": 1}))
    assert SECRETS.fields(view) is view


def test_fields_outside_of_contents_are_never_hidden(ledger: Ledger) -> None:
    shown = Redaction(["*"]).fields(job_view(ledger.enqueue("pay", {"n": 1})))
    assert (shown.kind, shown.queue, shown.args, shown.result) == ("pay", "default", "[redacted]", None)


def test_the_fields_of_an_answer_are_redacted() -> None:
    fields: Any = {"job_id": 7, "args": {"card": 1}, "last_error": msgspec.Raw(b'{"message":"x"}'), "history": [{"reason": "y"}]}
    shown = SECRETS.fields(fields)
    assert msgspec.json.encode(shown) == (
        b'{"job_id":7,"args":{"card":"[redacted]"},"last_error":{"message":"[redacted]"},"history":[{"reason":"y"}]}'
    )
    assert SECRETS.fields([{"password": "no contents"}]) == [{"password": "no contents"}]


def test_a_signed_statement_is_redacted(ledger: Ledger) -> None:
    [event] = ledger.events(ledger.enqueue("k").id)
    signed = msgspec.structs.replace(event, statement='{"jobId":1,"args":{"card":"4111"}}')
    assert SECRETS.fields(signed).statement == '{"jobId":1,"args":{"card":"[redacted]"}}'
    assert SECRETS.fields(event) is event


@pytest.mark.parametrize("patterns", [[""], [7], ["a\nb"], ["a"] * 1_001, ["a" * 501]])
def test_wrong_patterns_are_refused(patterns: Any) -> None:
    with pytest.raises(HoldfastError) as refused:
        Redaction(patterns)
    assert refused.value.context["field"] == "redact"


def test_the_text_of_a_sealed_payload_is_redacted() -> None:
    sealed = '{"queue":"q","args":{"card":"4111","n":1.10}}'

    shown = Redaction(["*.card"]).fields({"events": [{"sealed_payload": sealed}]})
    assert shown["events"][0]["sealed_payload"] == '{"queue":"q","args":{"card":"[redacted]","n":1.10}}'
    same = {"events": [{"sealed_payload": sealed}]}
    assert Redaction(["*.pin"]).fields(same) is same
