"""One job's proof verifies by itself, and nothing in it can be changed."""

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.proof.verify import parse_trusted, read_anchor
from tests.support.signers import enrol, opened
from tests.verify.files import first, spelled, verified
from tests.verify.rich import Exported

Lines = list[dict[str, Any]]


@pytest.mark.parametrize("job", ["plain", "sure", "live", "rotated"])
def test_a_proof_is_intact(job: str, export: Exported):
    verdict = verified(export.proofs[job], export)
    assert verdict.findings == [] and verdict.kind == "proof" and verdict.checked.jobs == 1
    assert verdict.checked.leaves == verdict.checked.events + 8 and verdict.sealed == 117


def test_one_key_is_enough(export: Exported):
    assert verified(export.proofs["sure"], export, trusted=parse_trusted(export.vkey)).intact


def test_a_proof_is_small(export: Exported):
    assert len(export.proofs["plain"]) < len(export.body) / 2


def _lines(export: Exported, job: str = "plain") -> Lines:
    return [json.loads(line) for line in export.proofs[job].splitlines()]


def _body(lines: Lines) -> bytes:
    return json.dumps(lines[0], separators=(",", ":")).encode() + b"\n" + b"".join(map(spelled, lines[1:]))


def _at(lines: Lines, rev: int) -> int:
    return next(number for number, line in enumerate(lines, 1) if line.get("event", {}).get("rev") == rev)


def _result(lines: Lines) -> tuple[str, int]:
    number = _at(lines, 6)
    lines[number - 1]["event"]["payload"] = '{"result":{"answer":43}}'
    next(line for line in lines if "job" in line)["job"]["result"] = '{"answer":43}'
    return "leaf", number


def _another_place(lines: Lines) -> tuple[str, int]:
    number = _at(lines, 6)
    lines[number - 1]["leaf"]["index"] -= 1
    return "leaf", number


def _another_way(lines: Lines) -> tuple[str, int]:
    number = _at(lines, 6)
    lines[number - 1]["leaf"]["proof"][0] = "0" * 64
    return "leaf", number


def _last_event(lines: Lines) -> tuple[str, int]:
    number = _at(lines, 6)
    lines.pop(number - 1)
    lines[-1]["end"]["events"] -= 1
    return "fold", next(number for number, line in enumerate(lines, 1) if "job" in line)


def _unsealed(lines: Lines) -> tuple[str, int]:
    number = _at(lines, 6)
    del lines[number - 1]["leaf"]
    return "unsealed", number


def _head(lines: Lines) -> tuple[str, int]:
    number = next(number for number, line in enumerate(lines, 1) if "head" in line)
    lines[number - 1]["head"] = lines[number - 1]["head"].replace("\n117\n", "\n118\n")
    return "head", number


def _no_head(lines: Lines) -> tuple[str, int]:
    lines.pop(next(number for number, line in enumerate(lines) if "head" in line))
    lines[-1]["end"]["heads"] = 0
    return "head", len(lines)


def _swapped(lines: Lines) -> tuple[str, int]:
    """Swap two events in the tree."""
    one, other = _at(lines, 4), _at(lines, 5)
    lines[one - 1]["leaf"], lines[other - 1]["leaf"] = lines[other - 1]["leaf"], lines[one - 1]["leaf"]
    return "leaf", one


def _placed_row(lines: Lines) -> tuple[str, int]:
    number = next(number for number, line in enumerate(lines, 1) if "job" in line)
    lines[number - 1]["leaf"] = {"index": 1}
    return "file", number


@pytest.mark.parametrize(
    "change",
    [_result, _another_place, _another_way, _last_event, _unsealed, _head, _no_head, _swapped, _placed_row],
    ids=lambda change: change.__name__.strip("_"),
)
def test_every_change_in_a_proof_is_noticed(change: Callable[[Lines], tuple[str, int]], export: Exported):
    lines = _lines(export)
    rule, line = change(lines)
    found = first(verified(_body(lines), export))
    assert (found.rule, found.line) == (rule, line), found


def test_an_event_that_was_changed_is_named(export: Exported):
    lines = _lines(export)
    _result(lines)
    found = first(verified(_body(lines), export))
    assert (found.job_id, found.rev) == (export.jobs["plain"], 6) and found.pos is not None


def test_a_proof_agrees_with_its_own_head_among_those_given(export: Exported):
    anchors = read_anchor("anchor", "\n".join(export.anchors))
    assert verified(export.proofs["plain"], export, anchors=anchors).intact


def test_an_older_head_is_not_accepted_for_a_proof(export: Exported):
    verdict = verified(export.proofs["plain"], export, anchors=read_anchor("anchor", export.anchors[0]))
    assert [finding.rule for finding in verdict.findings] == ["own head"]


def test_two_different_heads_of_one_size_are_found(export: Exported):
    [own] = read_anchor("anchor", export.anchors[-1])
    other = msgspec.structs.replace(own, head=msgspec.structs.replace(own.head, root=bytes(32)))
    verdict = verified(export.proofs["plain"], export, anchors=[own, other])
    assert [finding.rule for finding in verdict.findings] == ["anchor"]


def test_events_newer_than_the_newest_head_are_reported(store_url: str, clock: Any):
    from holdfast.services.sealer import Sealer
    from tests.contract.builders import claim

    with opened(store_url, clock) as ledger:
        enrol(ledger)
        job = ledger.enqueue("plain", {})
        with Sealer(ledger) as sealer:
            sealer.seal_all()
        claim(ledger, job.id)
        out, whole = io.BytesIO(), io.BytesIO()
        assert ledger.prove(job.id, out.write).events == 2
        ledger.export(whole.write)
        trusted = parse_trusted(_vkey(ledger))
    for body in (out.getvalue(), whole.getvalue()):
        verdict = _verified(body, trusted=trusted)
        assert verdict.unsealed == 1 and [finding.rule for finding in verdict.findings] == ["unsealed"]
        assert _verified(body, trusted=trusted, allow_unsealed=True).intact


def _vkey(ledger: Any) -> str:
    from holdfast.cli.key import public_keys

    return str(public_keys(ledger)["vkey"])


def _verified(body: bytes, **wishes: Any) -> Any:
    from holdfast.proof.verify import VerifyOptions, verify_file

    return verify_file(io.BytesIO(body), VerifyOptions(**wishes))
