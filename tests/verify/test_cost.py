"""The cost of verification grows with the size of the file, not with the product of two counts in it.

The test counts the instructions that Python executes, which are the same on every machine.
"""

import io
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from holdfast.proof.export_format import EndLine, ExportHeader, ExportLine, KeyLine, encode_line
from holdfast.proof.key_book import ENROLLED, REVOKED, KeyChange
from holdfast.proof.leaves import key_leaf
from holdfast.proof.merkle import Frontier, leaf_hash
from holdfast.proof.notes import LogHead, NoteKey, origin_of, sign_head
from holdfast.proof.verify import VerifyOptions, parse_trusted, read_anchor, verify_file
from holdfast.proof.verify_events import _COMPACT_BYTES_MAX, POLICY_CHARACTERS_MAX
from tests.support.signers import SERVER, key
from tests.verify.files import File, verified
from tests.verify.rich import Exported

LEDGER = "abcdefgh"
ORIGIN = origin_of(LEDGER)
SERVERS = parse_trusted(NoteKey(ORIGIN, SERVER.public).text())
HEADER = ExportHeader(holdfast_export=1, ledger=LEDGER, origin=ORIGIN, exported_at=1, version="1")


class Made:
    """An export with keys and heads only."""

    def __init__(self, keys: int, heads: int, revoked: int = 0) -> None:
        self.changes = [self._change(number, number, ENROLLED) for number in range(1, keys + 1)]
        self.changes += [self._change(keys + number, number + 1, REVOKED) for number in range(1, revoked + 1)]
        frontier = Frontier()
        frontier.append(leaf_hash(key_leaf(*msgspec.structs.astuple(change))) for change in self.changes)
        signer = key("server", "hq", keys)  # the key that a search through all keys finds last
        assert signer.secret is not None
        self.note = sign_head(LogHead(ORIGIN, len(self.changes), frontier.root()), signer.secret)
        lines = [ExportLine(key=_line(change)) for change in self.changes] + [ExportLine(head=self.note)] * heads
        lines.append(ExportLine(end=EndLine(keys=len(self.changes), heads=heads)))
        self.body = encode_line(HEADER) + b"".join(map(encode_line, lines))

    def _change(self, pos: int, number: int, what: str) -> KeyChange:
        assert SERVER.secret is not None
        about = key("server", "hq", number)
        made = KeyChange(pos, what, about.key_id, "server", "hq", about.public.public, pos, "hq", SERVER.key_id)
        return msgspec.structs.replace(made, signature=SERVER.secret.sign(made.message(LEDGER)))

    def trusted(self, known: int | None = None) -> str:
        """The keys that were exported first."""
        keys = [
            {"key_id": c.key_id, "role": c.role, "name": c.name, "public": c.public.hex(), "enrolled_pos": c.pos}
            for c in self.changes[:known]
        ]
        return json.dumps({"holdfast_keys": 1, "ledger": LEDGER, "keys": keys})


def _line(change: KeyChange) -> KeyLine:
    fields = msgspec.structs.asdict(change)
    return KeyLine(**{**fields, "public": change.public.hex(), "signature": change.signature.hex()})


def cost(body: bytes, wishes: VerifyOptions) -> int:
    """The number of instructions that verification executes. Repeated heads are its only allowed finding."""
    count = 0

    def counted(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return counted

    sys.settrace(counted)
    try:
        verdict = verify_file(io.BytesIO(body), wishes)
    finally:
        sys.settrace(None)
    assert {finding.rule for finding in verdict.findings} <= {"order"}
    return count


def heads_and_keys(heads: int, keys: int) -> int:
    made = Made(keys=keys, heads=heads)
    return cost(made.body, VerifyOptions(SERVERS))


def anchors_and_keys(anchors: int, keys: int) -> int:
    made = Made(keys=keys, heads=1)
    return cost(made.body, VerifyOptions(SERVERS, read_anchor("a", made.note * anchors)))


def revocations_and_keys(revoked: int, keys: int) -> int:
    made = Made(keys=100 + keys, heads=1, revoked=revoked)
    return cost(made.body, VerifyOptions(SERVERS))


def changes_and_trusted_keys(changes: int, keys: int) -> int:
    made = Made(keys=keys + changes, heads=1)
    return cost(made.body, VerifyOptions(parse_trusted(made.trusted(known=keys))))


@pytest.mark.parametrize("of", [heads_and_keys, anchors_and_keys, revocations_and_keys, changes_and_trusted_keys])
def test_the_cost_grows_linearly_with_each_count(of: Callable[[int, int], int]) -> None:
    """The cost of more items of one type does not depend on the number of items of the other."""
    few, many = 33, 65  # trees with two perfect halves: their roots cost the same
    more_beside_few, more_beside_many = of(many, few) - of(few, few), of(many, many) - of(few, many)
    assert more_beside_many - more_beside_few < (many - few) ** 2, (more_beside_few, more_beside_many)


def test_keys_that_share_a_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature names its key by a hash of four bytes. All keys of this test have the same hash."""
    monkeypatch.setattr("holdfast.proof.notes.KEY_HASH_BYTES", 0)
    made = Made(keys=3, heads=1)
    assert verify_file(io.BytesIO(made.body), VerifyOptions(parse_trusted(made.trusted()))).intact


def test_the_size_of_a_policy_is_limited(export: Exported) -> None:
    file = File(export)
    number = file.at("policy")
    file.of(number)["body"] += " " * POLICY_CHARACTERS_MAX
    found = verified(file.body(), export).findings[0]
    assert (found.line, found.rule, "characters" in found.detail) == (number, "policy", True)


def test_the_size_of_a_job_is_limited(export: Exported) -> None:
    file = File(export)
    event = next(line["event"] for line in file.lines if line.get("event", {}).get("type") == "enqueued")
    event["correlation_id"] = "a" * _COMPACT_BYTES_MAX
    rules = {finding.rule: finding.detail for finding in verified(file.body(), export).findings}
    assert rules["unreadable"] == "a job larger than any ledger writes"
