"""Exports verify on both stores, and the verdict counts what was checked."""

import io
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.key import encode_document, public_keys
from holdfast.proof.verify import parse_trusted, read_anchor
from holdfast.testing import ManualClock
from tests.contract.builders import claim
from tests.support.signers import ALL_KEYS, enrol
from tests.verify.files import File, first, verified
from tests.verify.rich import Exported, RichLedger


def test_an_export_is_intact(export: Exported):
    verdict = verified(export.body, export)
    assert verdict.findings == [] and verdict.intact and verdict.kind == "export"
    assert verdict.checked.gone == 5 and verdict.checked.heads == 5 and verdict.checked.keys == 8
    assert verdict.checked.leaves == verdict.sealed == verdict.checked.events + 8 + 5
    assert verdict.checked.signatures > 12 and verdict.unsealed == 0


def test_one_key_is_enough_to_check_an_export(export: Exported):
    assert verified(export.body, export, trusted=parse_trusted(export.vkey)).intact


def test_an_export_agrees_with_every_anchored_head(export: Exported):
    anchors = read_anchor("anchor", "\n".join(export.anchors))
    assert len(anchors) == 5
    verdict = verified(export.body, export, anchors=anchors)
    assert verdict.intact and verdict.checked.anchors == 5


def test_without_keys_only_consistency_is_checked(export: Exported):
    verdict = verified(export.body, export, trusted=None)
    assert verdict.found == 1 and first(verdict).rule == "trust"


def test_gone_events_can_be_refused(export: Exported):
    verdict = verified(export.body, export, allow_gone=False)
    assert verdict.found == 5 and {finding.rule for finding in verdict.findings} == {"gone"}


def test_attempts_without_required_signatures_are_counted(export: Exported):
    checked = verified(export.body, export).checked
    claims = [line["event"] for line in File(export).lines if line.get("event", {}).get("type") == "claimed"]
    assert checked.attempts == len(claims) and checked.worker_keys == 3
    assert 0 < checked.unsigned_attempts < checked.attempts


def test_signatures_can_be_required(export: Exported):
    checked = verified(export.body, export).checked
    for level, lower in (("liveness", {"none"}), ("all", {"none", "liveness"})):
        verdict = verified(export.body, export, require_signed=level)
        assert {finding.rule for finding in verdict.findings} == {"signed"}
        assert verdict.found >= checked.unsigned_attempts
        assert {finding.detail.split("signed=")[1].split(",")[0] for finding in verdict.findings} <= lower
    assert first(verified(export.proofs["plain"], export, require_signed="liveness")).job_id == export.jobs["plain"]


def test_a_sufficiently_signed_export_is_intact(export: Exported):
    assert verified(export.proofs["sure"], export, require_signed="all").intact
    assert verified(export.proofs["live"], export, require_signed="liveness").intact
    assert first(verified(export.proofs["live"], export, require_signed="all")).rule == "signed"


def test_the_test_tools_do_not_change_an_export(export: Exported):
    file = File(export)
    assert file.body() == export.body
    file.recount()
    assert file.body() == export.body
    file.reseal()
    assert file.body() == export.body


def test_a_lease_renewed_for_another_ttl_is_intact(tmp_path: Path):
    clock, file = ManualClock(), io.BytesIO()
    with holdfast.open(f"sqlite:///{tmp_path}/renewed.db", clock=clock, keys=list(ALL_KEYS), actor="ann") as ledger:
        enrol(ledger, [*ALL_KEYS])
        ledger.set_policy("live", signed="liveness")
        story = RichLedger(ledger, clock)
        fence = story.begin("live", "live")
        ledger.claim_job(fence.job_id, "w-1", ttl="15m")
        story.wait(800)
        ledger.heartbeat(fence, progress=1)
        assert claim(ledger, fence.job_id, ttl="2m").fence == fence
        story.wait(100)
        ledger.complete(fence, 1)
        story.seal()
        ledger.export(file.write)
        document = public_keys(ledger)
        export = Exported(file.getvalue(), story.anchors, encode_document(document), document["vkey"], ledger.id, story.jobs, {})
    assert verified(export.body, export).intact
    beats = [line["event"] for line in File(export).lines if line.get("event", {}).get("type") == "heartbeat"]
    assert ["policy" in beat for beat in beats] == [True, False, True]


@pytest.mark.parametrize(
    "options",
    [{"requires": ["gpu"]}, {"for_worker": "w-1", "requires": ["gpu"]}, {"partition": "acme", "limits": {"api": 2, "db": 1}}],
    ids=["labels", "only worker", "partition and limits"],
)
def test_jobs_with_options_of_flow_control_are_intact(tmp_path: Path, options: dict[str, Any]):
    file, proof = io.BytesIO(), io.BytesIO()
    with holdfast.open(f"sqlite:///{tmp_path}/flow.db", clock=ManualClock(), keys=list(ALL_KEYS), actor="ann") as ledger:
        enrol(ledger, [*ALL_KEYS])
        story = RichLedger(ledger, ManualClock())
        for limit in options.get("limits", ()):
            ledger.set_limit(limit, concurrent=3)
        job = ledger.enqueue("index", **options)
        ledger.move(job.id, for_worker="w-2")
        story.seal()
        ledger.export(file.write)
        ledger.prove(job.id, proof.write)
        document = public_keys(ledger)
        export = Exported(file.getvalue(), story.anchors, encode_document(document), document["vkey"], ledger.id, {}, {})
    assert verified(export.body, export).findings == []
    assert verified(proof.getvalue(), export).findings == []
    forged = export.body.replace(b'"requires":["worker:w-2"', b'"requires":["worker:w-3"')
    assert forged != export.body
    assert first(verified(forged, export)).rule == "fold"
