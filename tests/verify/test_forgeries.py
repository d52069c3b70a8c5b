"""A consistent forgery of the whole history needs the server's key, and fails if an old head was kept."""

import io
import json
from itertools import pairwise

import msgspec
import pytest

import holdfast
from holdfast.proof.key_book import KeyChange
from holdfast.proof.keys import KeyFile
from holdfast.proof.verify import VerifyOptions, parse_trusted, read_anchor, verify_file
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.support.signers import OPERATOR, SERVER, enrol, key
from tests.verify.files import LEAVES, File, first, verified
from tests.verify.rich import SERVER_2, Exported

MALLORY = key("server", "hq", 666)


def _rewritten(export: Exported) -> File:
    """Change a result in the event and in the row. No rule of the lifecycle is broken."""
    file = File(export)
    file.event("plain", 6)["payload"] = '{"result":{"answer":43}}'
    file.row("plain")["result"] = '{"answer":43}'
    return file


def _vouched(change: dict[str, object], ledger_id: str, by: KeyFile) -> None:
    """Sign a change of keys again."""
    assert by.secret is not None
    change["signer"] = by.key_id
    whole = {**change, "public": bytes.fromhex(str(change["public"])), "signature": b""}
    made = msgspec.convert(whole, type=KeyChange)
    change["signature"] = by.secret.sign(made.message(ledger_id)).hex()


def _usurped(file: File) -> None:
    """Replace the server's first key by an attacker's key, which enrols all other keys and signs the heads up to the rotation."""
    rotated = file.of(file.at("key", change="revoked", key_id=SERVER.key_id))["pos"]
    for line in file.lines:
        change = line.get("key")
        if change is None:
            continue
        if change["key_id"] == SERVER.key_id:
            change |= {"key_id": MALLORY.key_id, "public": MALLORY.public.public.hex()}
        _vouched(change, file.ledger_id, MALLORY if change["pos"] <= rotated else SERVER_2)


def _hidden(file: File, number: int) -> None:
    """Mark a leaf as gone: only its hash is left."""
    index = sum(any(kind in line for kind in LEAVES) for line in file.lines[: number - 1])
    file.lines[number - 1] = {"gone": {"pos": file.of(number)["pos"], "hash": file.hashes()[index].hex()}}


def _cut_back(export: Exported) -> File:
    """The file as it was before the rotation, with the heads of that time: valid, but incomplete."""
    file = File(export)
    before = file.at("key", change="enrolled", key_id=SERVER_2.key_id)
    del file.lines[before - 1 : file.at("job", id=file.jobs["pruned"]) - 1]
    file.take(file.heads()[-1])
    row = file.row("rotated")
    beat = file.event("rotated", 4)
    renewed = {"last_beat_at": 0, "updated_at": 0, "progressed_at": 0, "lease_expires_at": 60_000_000}
    row |= {"rev": 4, "progress": 1, "counter": json.loads(beat["statement"])["counter"]}
    row |= {name: beat["received_at"] + more for name, more in renewed.items()}
    file.recount()
    return file


def test_heads_signed_by_an_unknown_key_are_found(export: Exported):
    file = _rewritten(export)
    file.reseal(MALLORY)
    found = first(verified(file.body(), export))
    assert (found.rule, found.line) == ("head", file.heads()[0])


def test_a_rewrite_without_the_servers_key_is_found(export: Exported):
    """All hashes are computed again, and the heads are not changed."""
    found = first(verified(_rewritten(export).body(), export))
    assert found.rule == "tree" and "41 leaves" in found.detail


def test_a_rewrite_with_the_attackers_keys_is_found(export: Exported):
    """The tree, the heads and the key book are consistent: only a known key reveals the rewrite."""
    file = _rewritten(export)
    _usurped(file)
    file.reseal(MALLORY)
    verdict = verified(file.body(), export)
    assert (first(verdict).rule, first(verdict).line) == ("keys", 2)


@pytest.mark.parametrize("key_of", [SERVER, SERVER_2])
def test_one_trusted_key_is_enough_to_notice(key_of: KeyFile, export: Exported):
    from holdfast.proof.notes import NoteKey, origin_of

    file = _rewritten(export)
    _usurped(file)
    file.reseal(MALLORY)
    file.take(file.at("key", change="revoked", role="server"))
    hashes = file.hashes()
    assert MALLORY.secret is not None
    file.lines[file.heads()[-1] - 1] = {"head": file.head(hashes, len(hashes), MALLORY.secret)}
    file.recount()
    vkey = NoteKey(origin_of(export.ledger_id), key_of.public).text()
    assert "trust" in {finding.rule for finding in verified(file.body(), export, trusted=parse_trusted(vkey)).findings}


def test_the_server_s_key_can_rewrite_what_was_never_anchored(export: Exported):
    """A signature cannot show this. The page on proofs says so."""
    file = _rewritten(export)
    file.reseal()
    assert verified(file.body(), export).intact


def test_an_anchored_head_reveals_a_rewrite_by_the_server(export: Exported):
    file = _rewritten(export)
    file.reseal()
    verdict = verified(file.body(), export, anchors=read_anchor("anchor", export.anchors[1]))
    found = first(verdict)
    assert found.rule == "anchor" and found.from_line is not None
    assert found.from_line <= file.event_at("plain", 6) <= found.line


def test_the_first_anchored_head_that_does_not_match_is_reported(export: Exported):
    file = _rewritten(export)
    file.reseal()
    verdict = verified(file.body(), export, anchors=read_anchor("anchor", "\n".join(export.anchors)))
    found = first(verdict)
    assert found.rule == "anchor" and (found.from_line, found.line) == (18, 44)


def test_an_anchored_head_reveals_a_truncation(export: Exported):
    file = _cut_back(export)
    vkey = parse_trusted(_vkey(export))
    assert verified(file.body(), export, trusted=vkey).intact
    verdict = verified(file.body(), export, trusted=vkey, anchors=read_anchor("anchor", export.anchors[-1]))
    assert first(verdict).rule == "anchor" and "older than that head" in first(verdict).detail


def _vkey(export: Exported) -> str:
    """The first server's key, noted before the rotation."""
    from holdfast.proof.notes import NoteKey, origin_of

    return NoteKey(origin_of(export.ledger_id), SERVER.public).text()


def test_an_invented_head_is_not_accepted_as_anchor(export: Exported):
    file = File(export)
    assert MALLORY.secret is not None
    note = file.head(file.hashes(), 41, MALLORY.secret)
    verdict = verified(export.body, export, anchors=read_anchor("anchor", note))
    assert first(verdict).rule == "anchor" and first(verdict).place() == "an older head"


def test_a_revoked_key_cannot_sign_later_heads(export: Exported):
    """An attacker with the server's old key removes the rotation and signs the later heads."""
    file = File(export)
    file.take(file.at("key", change="revoked", key_id=SERVER.key_id))
    file.recount()
    hashes = file.hashes()
    assert SERVER.secret is not None
    file.lines[file.heads()[-1] - 1] = {"head": file.head(hashes, len(hashes), SERVER.secret)}
    rules = {finding.rule for finding in verified(file.body(), export).findings}
    assert "keys" in rules
    rules = {finding.rule for finding in verified(file.body(), export, trusted=parse_trusted(export.vkey)).findings}
    assert "trust" in rules


def test_a_trusted_key_covers_the_keys_enrolled_by_it(store_url: str, clock: ManualClock):
    """Each key of three rotations is enough. The last one signs the newest head."""
    from holdfast.proof.notes import NoteKey, origin_of

    keys = [SERVER, SERVER_2, key("server", "hq", 3)]
    with holdfast.open(store_url, clock=clock, keys=keys, actor="ann") as ledger:
        enrol(ledger, [SERVER])
        for old, new in pairwise(keys):
            ledger.rotate_key(old.key_id, new.public)
            with Sealer(ledger) as sealer:
                sealer.seal_all()
        out = io.BytesIO()
        ledger.export(out.write)
        vkeys = [NoteKey(origin_of(ledger.id), known.public).text() for known in keys]
    for vkey in vkeys:
        assert verify_file(io.BytesIO(out.getvalue()), VerifyOptions(trusted=parse_trusted(vkey))).findings == []


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_hidden_revocation_does_not_restore_a_key(is_keyed: bool, export: Exported):
    """An attacker with the server's old key hides its revocation, adds a worker's key and seals it.

    The tree and the heads before that are unchanged.
    """
    file = File(export)
    _hidden(file, file.at("key", change="revoked", role="server"))
    _enrolled_by(file, key("worker", "w-9"), SERVER)
    hashes = file.hashes()
    assert SERVER.secret is not None
    file.put(file.heads()[-1] + 1, {"head": file.head(hashes, len(hashes), SERVER.secret)})
    file.recount()
    anchors = read_anchor("anchor", "\n".join(export.anchors))
    trusted = parse_trusted(export.trusted if is_keyed else export.vkey)
    assert "trust" in {finding.rule for finding in verified(file.body(), export, trusted=trusted, anchors=anchors).findings}


def test_a_revoked_key_is_trusted_only_up_to_an_anchored_head(export: Exported):
    """The file ends before the revocation. A stolen key could have rewritten it, unless a head of that time was anchored."""
    body = _cut_back(export).body()
    verdict = verified(body, export)
    assert [finding.rule for finding in verdict.findings] == ["trust"] and "is revoked by now" in first(verdict).detail
    assert verified(body, export, anchors=read_anchor("anchor", export.anchors[-2])).intact
    older = verified(body, export, anchors=read_anchor("anchor", export.anchors[-3]))
    assert [finding.rule for finding in older.findings] == ["trust"]


def test_a_revoked_key_is_not_trusted_in_a_new_proof(store_url: str, clock: ManualClock):
    from holdfast.cli.key import encode_document, public_keys

    with holdfast.open(store_url, clock=clock, keys=[SERVER, SERVER_2], actor="ann") as ledger:
        enrol(ledger, [SERVER])
        job_id = ledger.enqueue("plain").id
        with Sealer(ledger) as sealer:
            sealer.seal_all()
            assert sealer.newest is not None
            note = sealer.newest.note
        out = io.BytesIO()
        ledger.prove(job_id, out.write)
        ledger.rotate_key(SERVER.key_id, SERVER_2.public)
        trusted = parse_trusted(encode_document(public_keys(ledger)))
    verdict = verify_file(io.BytesIO(out.getvalue()), VerifyOptions(trusted=trusted))
    assert [finding.rule for finding in verdict.findings] == ["trust"] and "is revoked by now" in first(verdict).detail
    assert verify_file(io.BytesIO(out.getvalue()), VerifyOptions(trusted=trusted, anchors=read_anchor("anchor", note))).intact


def _enrolled_by(file: File, made: KeyFile, by: KeyFile) -> None:
    """Append a leaf that enrols a key."""
    last = max(number for number, line in enumerate(file.lines, start=1) if any(kind in line for kind in LEAVES))
    whose = {"key_id": made.key_id, "role": made.role.value, "name": made.name, "public": made.public.public.hex()}
    at = file.of(file.at("key", key_id=SERVER_2.key_id))["at"]
    change = {"pos": file.of(last)["pos"] + 1, "change": "enrolled", **whose, "at": at, "by": "operator:ann"}
    _vouched(change, file.ledger_id, by)
    file.put(last + 1, {"key": change})


@pytest.mark.parametrize("trusted", ["keys", "first", "second"])
def test_an_operators_key_cannot_enrol_a_server_key(trusted: str, export: Exported):
    """An operator enrols a server's key, rewrites what was sealed, and signs one head over all of it."""
    file = _rewritten(export)
    _enrolled_by(file, MALLORY, OPERATOR)
    file.lines = [line for line in file.lines if "head" not in line]
    hashes = file.hashes()
    assert MALLORY.secret is not None
    file.put(len(file.lines), {"head": file.head(hashes, len(hashes), MALLORY.secret)})
    file.recount()
    known = {"keys": export.trusted, "first": _vkey(export), "second": export.vkey}[trusted]
    found = verified(file.body(), export, trusted=parse_trusted(known)).findings
    assert "keys" in {finding.rule for finding in found}
    assert any("may not vouch for a server's key" in finding.detail for finding in found)


def test_a_trace_that_was_added_to_a_later_event_is_found(export: Exported):
    """Only the leaf of the first event has a trace."""
    file = File(export)
    file.event("plain", 6)["trace_id"] = "00-another"
    found = first(verified(file.body(), export))
    assert (found.rule, found.line) == ("correlation", file.event_at("plain", 6))


def test_an_event_hidden_as_gone_is_found_only_if_gone_events_are_refused(export: Exported):
    """A hash cannot show this, but --no-gone does. The page on proofs says so."""
    file = File(export)
    _hidden(file, file.event_at("cancelled", 2))
    row = file.row("cancelled")
    row |= {"status": "queued", "rev": 1, "updated_at": row["created_at"]}
    del row["finished_at"], row["cancel_reason"]
    file.recount()
    assert verified(file.body(), export).intact
    assert not verified(file.body(), export, allow_gone=False).intact
