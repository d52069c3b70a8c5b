"""Payloads: strict JSON within its limits, kept as the bytes that came."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from msgspec import UNSET

from holdfast import Fence, Ledger, Raw
from tests.contract.builders import queued, refusal_of, refused_without_trace, running, trace
from tests.support.sealing import tamper

MIB = 1_048_576
Put = Callable[[Ledger, Any], Any]


def _nested(levels: int, core: str = "") -> str:
    """An object with arrays in it, `levels` containers deep."""
    return '{"a":' + "[" * (levels - 1) + core + "]" * (levels - 1) + "}"


def _python_nested(levels: int, core: list[Any]) -> dict[str, Any]:
    value: Any = core
    for _ in range(levels - 2):
        value = [value]
    return {"a": value}


def _text(value: Any) -> str:
    return f"raw {bytes(value)!r}" if isinstance(value, Raw) else repr(value)


@dataclasses.dataclass
class Point:
    x: int


def _complete(ledger: Ledger, value: Any) -> Any:
    made = running(ledger)
    ledger.complete(made.fence, value)
    return ledger.get(made.id).result


def _dead_letter(ledger: Ledger, error: Any) -> Any:
    return ledger.dead_letter(queued(ledger).id, reason_code="timeout", error=error).last_error


PLACES: dict[str, Put] = {
    "args": lambda ledger, value: ledger.enqueue("a", {"v": value}).args["v"],
    "result": _complete,
    "error": lambda ledger, value: ledger.fail(running(ledger).fence, {"v": value}).last_error["v"],
    "args of many": lambda ledger, value: ledger.enqueue_many([{"kind": "a"}, {"kind": "a", "args": {"v": value}}])[1].args["v"],
    "an operator's error": lambda ledger, value: _dead_letter(ledger, {"v": value})["v"],
}
every_place = pytest.mark.parametrize("put", PLACES.values(), ids=PLACES)

GOOD: list[Any] = [
    None, True, False, 0, -1, 2**53 - 1, -(2**53 - 1), 0.1, 1e300, "", "é€😀", "\x00\x1f\x7f", "a\u2028", [], {}, [[]],
    {"": 1}, {"é": [1, {"b": None}]}, "[" * 100, "1234567890123456789",
]  # fmt: skip
BAD: list[Any] = [
    float("nan"), float("inf"), float("-inf"), [float("nan")], 2**53, -(2**53), 2**63, 2**64, -(2**64), 10**30, "\ud800",
    {"\udfff": 1}, {1: 2}, {None: 1}, {(1, 2): 3}, {True: 1}, {1.5: 1}, b"x", {1, 2}, object, datetime(2026, 1, 1, tzinfo=UTC),
    Point(1), 1 + 2j, Decimal("1.5"), UUID(int=1), UNSET, {"deep": [{"er": b"x"}]},
]  # fmt: skip


@every_place
def test_json_values_are_returned_unchanged(ledger: Ledger, put: Put):
    assert [put(ledger, value) for value in GOOD] == GOOD


@every_place
def test_values_that_are_not_json_are_refused(ledger: Ledger, put: Put):
    assert [value for value in BAD if refusal_of(put, ledger, value) != "validation_error"] == []


def test_a_tuple_is_stored_as_an_array(ledger: Ledger):
    assert ledger.enqueue("a", {"v": (1, (2,))}).args == {"v": [1, [2]]}


@pytest.mark.parametrize("args", [[], "x", 7, [("a", 1)], Raw(b"[]"), Raw(b"1"), Raw(b'"x"')], ids=_text)
def test_args_must_be_an_object(ledger: Ledger, args: Any):
    with refused_without_trace(ledger, "validation_error"):
        ledger.enqueue("a", args)


def test_missing_args_are_an_empty_object(ledger: Ledger):
    assert ledger.enqueue("a").args == {}


# Bytes of other programs


@pytest.mark.parametrize(
    "body",
    [b'{"b":1.0,"a":2}', b'{ "a" : 1e2 }', b'{"a":"\\u00e9"}', b'{"a":-0}', b'{"a":"\\u0000"}', b'{"a":-9007199254740991}'],
)
def test_json_bytes_are_kept_unchanged(ledger: Ledger, body: bytes):
    job = ledger.enqueue("a", Raw(body))  # type: ignore[arg-type]
    assert ledger.get(job.id).record.args == body
    made = running(ledger)
    ledger.complete(made.fence, Raw(body))
    assert ledger.get(made.id).record.result == body
    assert ledger.check(made.id) == []


def test_only_blanks_around_json_bytes_are_dropped(ledger: Ledger):
    job = ledger.enqueue("a", Raw(b' { "a" : 1 }\n'))  # type: ignore[arg-type]
    assert ledger.get(job.id).record.args == b'{ "a" : 1 }'


NOT_STRICT = [
    b"", b"{", b'{"a":1}x', b'{"a":1,"a":2}', b'{"a":{"b":1,"b":1}}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}',
    b'{"a":1e400}', b'{"a":9007199254740992}', b'{"a":123456789012345678901234567890}', b'{"a":"\\ud800"}', b'{"\\udfff":1}',
    b'{"a":"\xff"}', b"\xef\xbb\xbf{}", b'{"a":01}', b"{'a':1}", b'{"a":"\n"}', b'{"a":1,}', b'{"a":1 "b":2}', b'{"a":"\x00"}',
    b'{"a":"\xed\xa0\x80"}', b'{"\\u0061":1,"a":2}', b'{"a":"\\x41"}',
]  # fmt: skip


def test_bytes_that_are_not_strict_json_are_refused(ledger: Ledger):
    fence = running(ledger).fence
    before = trace(ledger)
    for verb in (lambda body: ledger.enqueue("a", body), lambda body: ledger.complete(fence, body)):
        assert [body for body in NOT_STRICT if refusal_of(verb, Raw(body)) != "validation_error"] == []
    assert trace(ledger) == before


# Size and depth


@pytest.mark.parametrize("raw", [False, True])
def test_args_at_their_limit_are_accepted_and_one_byte_more_is_refused(ledger: Ledger, raw: bool):
    def args(size: int) -> Any:
        text = "x" * (size - len('{"a":""}'))
        return Raw(b'{"a":"' + text.encode() + b'"}') if raw else {"a": text}

    assert len(ledger.enqueue("a", args(MIB)).record.args) == MIB
    with refused_without_trace(ledger, "limit_exceeded") as caught:
        ledger.enqueue("a", args(MIB + 1))
    assert (caught.value.context["actual"], caught.value.context["limit"]) == (MIB + 1, MIB)


@pytest.mark.parametrize("many", [False, True])
def test_a_result_at_its_limit_is_accepted_and_one_byte_more_is_refused(ledger: Ledger, many: bool):
    def complete(fence: Fence, result: Any) -> Any:
        return ledger.complete_many([(fence, result)])[0] if many else ledger.complete(fence, result)

    fence = running(ledger).fence
    with refused_without_trace(ledger, "limit_exceeded"):
        complete(fence, "x" * (MIB - 1))
    assert complete(fence, "x" * (MIB - 2)).status == "succeeded"


def test_an_error_at_its_limit_is_accepted_and_one_byte_more_is_refused(ledger: Ledger):
    fence, size = running(ledger).fence, 16_384 - len('{"a":""}')
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.fail(fence, {"a": "x" * (size + 1)})
    assert ledger.fail(fence, {"a": "x" * size}).status == "queued"


@pytest.mark.parametrize("raw", [False, True], ids=["value", "raw"])
@pytest.mark.parametrize("core", [[], [1]], ids=["empty", "filled"])
def test_nesting_at_its_limit_is_accepted(ledger: Ledger, raw: bool, core: list[Any]):
    text = _nested(64, "1" if core else "")
    job = ledger.enqueue("a", Raw(text.encode()) if raw else _python_nested(64, core))  # type: ignore[arg-type]
    assert job.record.args == text.encode()


@pytest.mark.parametrize("raw", [False, True], ids=["value", "raw"])
@pytest.mark.parametrize("levels", [65, 1_000, 100_000])
def test_deeper_nesting_is_refused(ledger: Ledger, raw: bool, levels: int):
    given: Any = Raw(_nested(levels).encode()) if raw else _python_nested(levels, [])
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.enqueue("a", given)


def test_wide_values_are_accepted(ledger: Ledger):
    assert len(ledger.enqueue("a", {"v": [[]] * 1_000}).args["v"]) == 1_000


# Errors


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("broken", {"message": "broken"}),
        (ValueError("odd"), {"type": "ValueError", "message": "odd"}),
        ({"code": 7}, {"code": 7}),
        ("a\ud800b", {"message": "a?b"}),
        ("nul\x00", {"message": "nul\x00"}),
    ],
    ids=ascii,
)
def test_an_error_is_an_exception_a_text_or_an_object(ledger: Ledger, error: Any, kept: dict[str, Any]):
    assert ledger.fail(running(ledger).fence, error).last_error == kept


@pytest.mark.parametrize("error", [None, 7, ["x"], b"x", Raw(b"5"), Raw(b"null"), Raw(b"[]")], ids=_text)
def test_other_errors_are_refused(ledger: Ledger, error: Any):
    fence = running(ledger).fence
    with refused_without_trace(ledger, "validation_error"):
        ledger.fail(fence, error)


@pytest.mark.parametrize("message", ["x" * 100_000, "\x00" * 100_000, "😀" * 50_000], ids=["long", "escaped", "wide"])
def test_a_job_can_fail_with_a_long_message(ledger: Ledger, message: str):
    job = ledger.fail(running(ledger).fence, message, retryable=False)
    assert job.status == "failed"
    assert message.startswith(job.error["message"])


def test_a_job_can_fail_with_an_exception_that_has_no_text(ledger: Ledger):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert ledger.fail(running(ledger).fence, Mute()).status == "queued"


def test_a_job_with_unusual_characters_passes_the_check(ledger: Ledger):
    job = ledger.enqueue("a", {"v": "\x00é😀"})
    assert ledger.check(job.id) == []
    assert queued(ledger).id > job.id


def test_too_deeply_nested_json_in_the_database_is_reported_as_unreadable(ledger: Ledger, store_url: str):
    job = queued(ledger)
    deep = _nested(4_000).encode().hex()
    tamper(
        store_url,
        f"UPDATE {{jobs}} SET payload = X'{deep}'"
        if store_url.startswith("sqlite")
        else f"UPDATE {{jobs}} SET payload = decode('{deep}', 'hex')",
    )
    assert [found.rule for found in ledger.check(job.id)] == ["unreadable"]
