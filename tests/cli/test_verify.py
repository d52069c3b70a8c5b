"""`holdfast events export` and `holdfast verify`, as people start them."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def ledger(run: Run, folder: Path) -> Path:
    """A sealed ledger of three jobs, its export and its public keys, all in the folder."""
    assert run("key", "new", "main", "--role", "server").code == 0
    done = run("worker", "list", "--key", "main.key")
    assert done.code == 0
    import holdfast

    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as opened:
        opened.enqueue_many([{"kind": "plain", "args": {"n": number}} for number in range(3)])
    assert run("seal", "--once", "--key", "main.key", "--anchor", "heads.txt").code == 0
    assert run("events", "export", "--out", "all.jsonl").code == 0
    assert run("key", "export", "--out", "keys.json").code == 0
    return folder


def test_an_export_is_intact(run: Run, ledger: Path):
    done = run("verify", "all.jsonl", "--keys", "keys.json", "--head", "heads.txt")
    assert done.code == 0 and done.err == ""
    assert done.out.splitlines()[0] == (
        "3 events of 3 jobs, 0 signatures, 1 changes of keys; a tree of 4 leaves, 1 heads, 1 older heads."
    )
    assert done.out.splitlines()[-1] == "Intact."
    assert not list(ledger.glob("*.part"))


def test_it_goes_to_standard_output(run: Run, ledger: Path):
    lines = run("events", "export").out.splitlines()
    assert lines[0].startswith('{"holdfast_export":1,') and lines[-1] == '{"end":{"events":3,"jobs":3,"keys":1,"heads":1}}'


def test_a_change_is_told_with_its_place(run: Run, ledger: Path):
    text = (ledger / "all.jsonl").read_text()
    (ledger / "all.jsonl").write_text(text.replace('"to_status":"queued"', '"to_status":"claimed"', 1))
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1
    assert done.err.startswith("Failed: line 3, job 1, rev 1, position 2: step: enqueued from None to claimed")
    answer = run("verify", "all.jsonl", "--keys", "keys.json", "--json")
    assert answer.code == 1 and answer.answer["error_code"] == "not_intact"
    [first, *_] = answer.answer["error_context"]["violations"]
    assert (first["line"], first["job_id"], first["rev"], first["pos"], first["rule"]) == (3, 1, 1, 2, "step")
    assert first["meaning"] and answer.answer["error_context"]["found"] > 1


def test_without_keys_it_is_not_enough(run: Run, ledger: Path):
    done = run("verify", "all.jsonl")
    assert done.code == 1 and "vouches for itself only" in done.err


def test_a_note_key_will_do(run: Run, ledger: Path):
    vkey = run("key", "export", "--json").answer["data"]["vkey"]
    assert run("verify", "all.jsonl", "--keys", vkey, "--json").answer["data"]["intact"] is True
    (ledger / "vkey.txt").write_text(vkey + "\n")
    assert run("verify", "all.jsonl", "--keys", "vkey.txt").code == 0


def test_one_job_s_proof(run: Run, ledger: Path):
    assert run("verify", "--job", 2, "--out", "two.jsonl").out == (
        "The proof of job 2 is in two.jsonl: 1 events, 1 changes of keys.\n"
    )
    done = run("verify", "two.jsonl", "--keys", "keys.json")
    assert done.code == 0 and "2 proofs of a place in a tree of 4 leaves" in done.out
    assert run("verify", "--job", 2).out.startswith('{"holdfast_proof":1,')
    assert run("verify", "--job", 9, "--out", "no.jsonl").code == 1
    assert not (ledger / "no.jsonl").exists() and not (ledger / "no.jsonl.part").exists()


def test_what_is_not_sealed_yet_is_told(run: Run, ledger: Path):
    import holdfast

    with holdfast.open(f"sqlite:///{ledger}/holdfast.db") as opened:
        opened.enqueue("plain", {})
    run("events", "export", "--out", "all.jsonl")
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "unsealed" in done.err and "1 are newer than the newest head" in done.out
    assert run("verify", "all.jsonl", "--keys", "keys.json", "--allow-unsealed").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("all.jsonl", "--job", "1"),
        ("missing.jsonl",),
        ("all.jsonl", "--keys", "missing.json"),
        ("all.jsonl", "--keys", "shop.py"),
        ("all.jsonl", "--head", "shop.py"),
        ("all.jsonl", "--head", "missing.txt"),
        ("--job", "1", "--json"),
        ("--job", "1", "--out", "no/where.jsonl"),
        (".", "--keys", "keys.json"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], run: Run, ledger: Path):
    done = run("verify", *arguments)
    assert done.code == 2 and "Traceback" not in done.err, done


def test_an_export_has_one_form(run: Run, ledger: Path):
    assert run("events", "export", "--json").code == 2
    answer = run("events", "export", "--out", "b.jsonl", "--json").answer["data"]
    assert answer["lines"]["events"] == 3 and (ledger / "b.jsonl").exists()
    assert run("events", "export", "--out", "no/where.jsonl").code == 2


def test_garbage_gets_a_verdict(run: Run, ledger: Path):
    (ledger / "noise").write_bytes(bytes(range(256)) * 50)
    done = run("verify", "noise", "--keys", "keys.json")
    assert done.code == 1 and done.err.startswith("Failed: line 1: file:") and "Traceback" not in done.err
