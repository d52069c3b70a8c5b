"""Verification of a file with any contents ends with a verdict."""

import io
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.limits import EXPORT_LINE_BYTES_MAX as LINE_BYTES_MAX
from holdfast.errors import HoldfastError
from holdfast.proof.verify import VerifyOptions, parse_trusted, read_anchor, verify_file
from tests.verify.files import File, first, spelled, verified
from tests.verify.rich import Exported

DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"\x00" * 100,
        b"\xff\xfe\xff",
        b"\x1f\x8b\x08\x00",
        b"null\n",
        b"[]\n",
        DEEP,
        b'{"holdfast_export":1}\n',
        b'{"holdfast_export":2,"ledger":"a","origin":"holdfast/a","exported_at":1,"version":"1"}\n',
        b'{"ledger":"a","origin":"holdfast/a","exported_at":1,"version":"1"}\n',
        b"x" * (LINE_BYTES_MAX + 10),
    ],
    ids=range(12),
)
def test_a_file_that_is_not_an_export_is_reported(body: bytes):
    verdict = verify_file(io.BytesIO(body), VerifyOptions())
    assert not verdict.intact and verdict.findings[0].line == 1 and verdict.findings[0].rule == "file"


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"\xff\n",
        b'{"event":{}}\n',
        b'{"event":' + DEEP + b"}\n",
        b'{"head":"\\ud800"}\n',
        b'{"head":"' + b"x" * 200_000 + b'"}\n',
        b'{"end":{"events":1e999}}\n',
        b'{"end":{"events":' + b"9" * 10_000 + b"}}\n",
        b'{"end":{}}',
        b'{ "end":{}}\n',
        b'{"end":{},"end":{}}\n',
        b'{"job":{}}\n',
        b'{"job":{"id":{"a":1}}}\n',
        b'{"job":{"id":1,"policy":true}}\n',
        b'{"job":{"id":1,"policy":"1"}}\n',
        b'{"job":{"token":"x"}}\n',
        b'{"gone":{"pos":1,"hash":"00"}}\n',
        b'{"unreadable":{"job_id":3,"why":"\\u001b[2J"}}\n',
        b'{"policy":{"id":1,"body":"' + b"[" * 100_000 + b'"}}\n',
        b"y" * (LINE_BYTES_MAX + 10) + b"\n",
    ],
    ids=range(21),
)
def test_an_invalid_line_is_found(line: bytes, export: Exported):
    header, *rest = export.body.splitlines(keepends=True)
    verdict = verified(header + line + b"".join(rest), export)
    assert first(verdict).line <= 2


def test_a_file_that_is_truncated_anywhere_is_reported(export: Exported):
    for end in random.Random(7).sample(range(len(export.body)), 60):
        verdict = verified(export.body[:end], export)
        assert "file" in {finding.rule for finding in verdict.findings} or verdict.found > 20


def test_an_unreadable_line_is_reported_first_and_alone(export: Exported):
    """Line 2 enrols the server's key. Without it no head has a signer, and every later finding would be about that."""
    header, second, *rest = export.body.splitlines(keepends=True)
    anchors = read_anchor("anchor", "\n".join(export.anchors))
    verdict = verified(header + b" " + second + b"".join(rest), export, anchors=anchors)
    assert [(finding.rule, finding.line) for finding in verdict.findings] == [("file", 2)] and verdict.found == 1


def test_an_unreadable_line_is_reported_before_other_findings(export: Exported):
    file = File(export)
    file.event("plain", 4)["actor"] = "unknown"
    lines = file.body().splitlines(keepends=True)
    verdict = verified(b"".join([*lines[:-1], b" " + lines[-1]]), export)
    assert [finding.rule for finding in verdict.findings[:2]] == ["file", "file"]
    assert verdict.findings[2].line == file.event_at("plain", 4)


def test_a_byte_that_is_changed_anywhere_is_noticed(export: Exported):
    chosen = random.Random(11)
    start = export.body.index(b"\n") + 1
    for at in chosen.sample(range(start, len(export.body)), 150):
        changed = chosen.choice([byte for byte in b'0a"{}\x00\xff 9' if byte != export.body[at]])
        assert not verified(export.body[:at] + bytes([changed]) + export.body[at + 1 :], export).intact, at


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.just("9" * 400)


@given(seed=st.integers(0, 2**32), value=SCALARS)
def test_any_value_in_any_place_ends_with_a_verdict(seed: int, value: Any, export: Exported):
    chosen = random.Random(seed)
    file = File(export)
    line = chosen.choice(file.lines[1:])
    [(kind, body)] = line.items()
    if isinstance(body, dict):
        body[chosen.choice(sorted(body))] = value
    else:
        line[kind] = value
    verified(b"".join([json.dumps(file.lines[0]).encode() + b"\n", *map(spelled, file.lines[1:])]), export)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"holdfast_keys":1,"ledger":"a","keys":[]}', "a+b+c", '{"schema_version":"v1","data":1}',
     '{"holdfast_keys":2,"ledger":"a","keys":[{"key_id":"a","role":"server","name":"a","public":"00","enrolled_pos":1}]}',
     '{"holdfast_keys":1,"ledger":"a","keys":[{"key_id":"a","role":"server","name":"a","public":"' + "ab" * 32
     + '","enrolled_pos":1}]}'],
)  # fmt: skip
def test_invalid_keys_are_refused(text: str):
    with pytest.raises(HoldfastError):
        parse_trusted(text)


def test_a_file_without_keys_is_reported():
    with pytest.raises(HoldfastError, match="there is no key in the file"):
        parse_trusted('{"holdfast_keys":1,"ledger":"a","keys":[]}')


def test_the_json_answer_of_key_export_is_accepted(export: Exported):
    answer = json.dumps({"schema_version": "v1", "success": True, "data": {"file": "keys.json", **json.loads(export.trusted)}})
    assert parse_trusted(answer) == parse_trusted(export.trusted)


def test_an_invalid_anchor_is_refused():
    with pytest.raises(HoldfastError):
        read_anchor("notes.txt", "no head in here")


def test_an_anchor_with_a_truncated_note_is_accepted(export: Exported):
    torn = export.anchors[0] + "\n" + export.anchors[1][:40] + "\n\n" + export.anchors[2]
    assert [found.head.size for found in read_anchor("anchor", torn)] == [15, 65]


def test_an_anchor_with_a_note_truncated_anywhere_is_accepted(export: Exported):
    """The next sealer separates its own note. An unfinished note is ignored."""
    before, cut, after = export.anchors[:3]
    for end in range(1, len(cut) - 1):
        others: list[str] = []
        found = read_anchor("anchor", f"{before}\n{cut[:end]}\n\n{after}", others.append)
        assert [head.head.size for head in found] == [15, 65] and len(others) == 1, end
        assert len(read_anchor("anchor", f"{before}\n{cut[:end]}")) == 1


def test_an_anchor_with_a_very_long_line_is_read(export: Exported):
    """The line is read once, not once for each character."""
    assert len(read_anchor("anchor", "a" * 4_000_000 + "\n\n" + export.anchors[0])) == 1


def test_keys_of_another_ledger_are_refused(export: Exported):
    other = export.trusted.replace(export.ledger_id, "another")
    found = first(verified(export.body, export, trusted=parse_trusted(other)))
    assert (found.rule, found.line) == ("keys", 1)


def test_keys_older_than_the_export_are_accepted(export: Exported):
    """The keys before the rotation."""
    document = json.loads(export.trusted)
    document["keys"] = [{**known, "revoked_pos": None} for known in document["keys"] if known["enrolled_pos"] < 100]
    assert verified(export.body, export, trusted=parse_trusted(json.dumps(document))).intact


def test_keys_newer_than_the_export_are_accepted(export: Exported):
    document = json.loads(export.trusted)
    for known in document["keys"]:
        if known["name"] == "w-2":
            known["revoked_pos"] = 10**12
    assert verified(export.body, export, trusted=parse_trusted(json.dumps(document))).intact
