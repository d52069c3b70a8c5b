"""The lines of an export are read back, and each value has one encoding."""

import msgspec
import pytest

from holdfast.core.model import EventRecord, Policy
from holdfast.errors import ValidationError
from holdfast.proof.export_format import (
    EndLine,
    EventLine,
    ExportHeader,
    ExportLine,
    GoneLine,
    KeyLine,
    LeafProof,
    PolicyLine,
    UnreadableLine,
    encode_line,
    event_from_line,
    job_fields,
    job_from_fields,
    read_header,
    read_line,
)
from holdfast.proof.key_book import KeyChange
from tests.unit.histories import WINDOW, rich
from tests.unit.proof.trees import event_leaf_of

HEADER = ExportHeader(holdfast_export=1, ledger="a", origin="holdfast/a", exported_at=1, version="0.1.0")
KEY = KeyLine(1, "enrolled", "0" * 16, "worker", "w-1", "ab" * 32, 5, "operator:ann", "1" * 16, "cd" * 64)


def _line_of(event: EventRecord) -> EventLine:
    is_new = event.rev == 1
    return EventLine(
        event.rev, event.job_id, event.rev, event.type, event.received_at, str(event.actor), event.attempt, event.to_status,
        event.from_status, event.at, event.reason, event.request_id, event.cause,
        None if event.payload is None else event.payload.decode(), None if event.policy is None else 1,
        event.correlation_id if is_new else None, event.trace_id if is_new else None, "0" * 16, "ab" * 64, "{}",
    )  # fmt: skip


@pytest.mark.parametrize("number", range(len(rich().events)))
def test_an_event_has_the_same_leaf_in_its_line(number: int):
    signed = {"key_id": "0" * 16, "signature": b"\xab" * 64, "statement": b"{}"}
    event = rich().events[number]
    whole = msgspec.structs.replace(event, pos=event.rev, **signed)
    line = _line_of(event)
    policy = None if event.policy is None else msgspec.json.encode(event.policy).decode()
    assert line.leaf(policy) == event_leaf_of(whole)
    assert event_from_line(line, event.actor, event.policy, event.correlation_id, event.trace_id) == whole


@pytest.mark.parametrize(
    "line",
    [
        ExportLine(event=_line_of(rich().events[3]), leaf=LeafProof(3, ["ab" * 32])),
        ExportLine(key=KEY),
        ExportLine(gone=GoneLine(3, "ab" * 32)),
        ExportLine(policy=PolicyLine(1, "{}")),
        ExportLine(job={"id": 1, "queue": "q", "owner": None}),
        ExportLine(unreadable=UnreadableLine(4, "why")),
        ExportLine(head="note\n"),
        ExportLine(end=EndLine(1, 2, 3, 4, 5)),
    ],
    ids=["event", "key", "gone", "policy", "job", "unreadable", "head", "end"],
)
def test_a_line_is_read_back(line: ExportLine):
    assert read_line(encode_line(line)) == line


def test_a_header_is_read_back():
    assert read_header(encode_line(HEADER)) == HEADER


def test_a_change_of_keys_is_read_back():
    assert KEY.change_of() == KeyChange(
        1, "enrolled", "0" * 16, "worker", "w-1", b"\xab" * 32, 5, "operator:ann", "1" * 16, b"\xcd" * 64
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}\n",
        b"nonsense\n",
        b'{"head":"a","end":{}}\n',
        b'{"head":"a"}',
        b' {"head":"a"}\n',
        b'{"head":"a","head":"a"}\n',
        b'{"head":"\\u0061"}\n',
        b'{"other":1}\n',
        b'{"head":"a","leaf":{"index":1}}\n',
        b'{"leaf":{"index":1}}\n',
        b"\xff\n",
        b'{"gone":{"pos":0,"hash":"' + b"ab" * 32 + b'"}}\n',
        b'{"job":{"id":[1]}}\n',
        b'{"job":' + b'{"a":' * 100_000,
    ],
    ids=range(15),
)
def test_invalid_lines_are_refused(body: bytes):
    with pytest.raises(ValidationError):
        read_line(body)


def test_a_file_is_an_export_or_a_proof():
    both = msgspec.structs.replace(HEADER, holdfast_proof=1)
    neither = msgspec.structs.replace(HEADER, holdfast_export=msgspec.UNSET)
    for header in (both, neither):
        with pytest.raises(ValidationError, match="neither"):
            read_header(encode_line(header))


# Rows


@pytest.mark.parametrize("policy_id", [None, 7])
def test_a_row_is_read_back_without_its_token(policy_id: int | None):
    job = msgspec.structs.replace(rich().job, token="+".join("ab"), policy=None)
    fields = job_fields(job, policy_id)
    assert "token" not in fields and fields.get("policy") == policy_id
    policy = None if policy_id is None else Policy()
    expected = msgspec.structs.replace(job, token=None, policy=policy)
    assert job_from_fields(msgspec.json.decode(msgspec.json.encode(fields)), policy) == expected


def test_every_field_of_a_row_is_exported():
    job = rich(WINDOW).job
    exported = {*job_fields(job, 1), "token", "policy"}
    defaults = {name for name in type(job).__struct_fields__ if getattr(job, name) in (None, 0, False, (), "dead_letter")}
    assert exported | defaults == set(type(job).__struct_fields__)


def test_a_row_has_lists_of_the_jobs_that_it_waits_for():
    line = b'{"job":{"id":3,"depends_on":[1,2],"waits_for":[2]}}\n'
    assert read_line(line).job == {"id": 3, "depends_on": [1, 2], "waits_for": [2]}
    with pytest.raises(ValidationError):
        read_line(line.replace(b"[2]", b'["2"]'))


@pytest.mark.parametrize("fields", [{"token": "x"}, {"id": 1}, {"more": 1}, {"id": "one"}])
def test_invalid_rows_are_refused(fields: dict[str, object]):
    with pytest.raises(ValidationError):
        job_from_fields(fields, None)
