"""`holdfast events export` and `holdfast verify` in real processes."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.sealing import tamper


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
        "3 events of 3 jobs, 0 signatures, 1 change of keys; a tree of 4 leaves, 1 head, 1 older head."
    )
    assert done.out.splitlines()[-1] == "Intact."
    assert not list(ledger.glob("*.part"))


def test_an_export_goes_to_standard_output(run: Run, ledger: Path):
    lines = run("events", "export").out.splitlines()
    assert lines[0].startswith('{"holdfast_export":1,') and lines[-1] == '{"end":{"events":3,"jobs":3,"keys":1,"heads":1}}'


def test_a_change_is_reported_with_its_place(run: Run, ledger: Path):
    text = (ledger / "all.jsonl").read_text()
    (ledger / "all.jsonl").write_text(text.replace('"to_status":"queued"', '"to_status":"claimed"', 1))
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1
    assert done.err.startswith(
        "Failed: job 1, event 1 (enqueued), line 3, position 2: it goes from nothing to claimed, but a job begins as queued"
    )
    answer = run("verify", "all.jsonl", "--keys", "keys.json", "--json")
    assert answer.code == 1 and answer.answer["error_code"] == "not_intact"
    [first, *_] = answer.answer["error_context"]["violations"]
    assert (first["line"], first["job_id"], first["rev"], first["pos"], first["rule"]) == (3, 1, 1, 2, "step")
    assert first["meaning"] and answer.answer["error_context"]["found"] > 1


def test_a_changed_event_is_named_though_there_is_one_head(run: Run, ledger: Path):
    forge = """UPDATE {jobs} SET payload = CAST(replace(payload, '"n":1', '"n":7') AS BLOB) WHERE id = 2"""
    tamper(f"sqlite:///{ledger}/holdfast.db", forge)
    assert run("events", "export", "--out", "forged.jsonl").code == 0
    done = run("verify", "forged.jsonl", "--keys", "keys.json")
    assert done.code == 1
    assert done.err.startswith("Failed: job 2, event 1 (enqueued), line 4, position 3: it was changed after it was sealed")
    hint = next(line for line in (ledger / "forged.jsonl").read_text().splitlines() if line.startswith('{"sealed":'))

    sound = (ledger / "all.jsonl").read_text().splitlines()
    (ledger / "put_in.jsonl").write_text("\n".join([*sound[:4], hint, *sound[4:], ""]))
    done = run("verify", "put_in.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "no head shows that" in done.err
    (ledger / "astray.jsonl").write_text("\n".join([*sound[:5], hint, *sound[5:], ""]))
    done = run("verify", "astray.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "without the event that it belongs to" in done.err
    text = (ledger / "forged.jsonl").read_text()
    (ledger / "wrong.jsonl").write_text(text.replace(hint[-20:-4], "0" * 16))
    done = run("verify", "wrong.jsonl", "--keys", "keys.json", "--json")
    assert {found["rule"] for found in done.answer["error_context"]["violations"]} == {"sealed", "tree"}


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (
            "DELETE FROM {events} WHERE job_id = 2",
            "job 2, event 1, line 4, position 3: the job has no first event: it was deleted, and the job has no other events\n",
        ),
        (
            "UPDATE {events} SET pos = pos + 100 WHERE job_id = 3",
            "job 3, event 1 (enqueued), line 6, position 104: the sealed event at position 4 is missing there: it was moved to ",
        ),
        (
            "UPDATE {events} SET type = 'nosuch' WHERE job_id = 2",
            "job 2, event 1 (nosuch), line 4: the event cannot be read: its type is nosuch, which Holdfast does not write ",
        ),
        (
            "UPDATE {jobs} SET checkpoint_rev = 1 WHERE id = 1",
            "job 1, line 6: its row does not fit its history: checkpoint_rev in its row names an event of another type\n",
        ),
    ],
)
def test_the_best_finding_comes_first_in_plain_words(run: Run, ledger: Path, forge: str, said: str):
    tamper(f"sqlite:///{ledger}/holdfast.db", forge)
    assert run("events", "export", "--out", "forged.jsonl").code == 0
    done = run("verify", "forged.jsonl", "--keys", "keys.json")
    assert done.code == 1 and done.err.startswith(f"Failed: {said}"), done.err
    assert "Error" not in done.err and "retention deleted" not in done.out


def test_verification_without_keys_is_not_enough(run: Run, ledger: Path):
    done = run("verify", "all.jsonl")
    assert done.code == 1 and "vouches for itself only" in done.err


def test_a_note_key_is_accepted_as_key(run: Run, ledger: Path):
    vkey = run("key", "export", "--json").answer["data"]["vkey"]
    assert run("verify", "all.jsonl", "--keys", vkey, "--json").answer["data"]["intact"] is True
    (ledger / "vkey.txt").write_text(vkey + "\n")
    assert run("verify", "all.jsonl", "--keys", "vkey.txt").code == 0


def test_the_proof_of_one_job_is_verified(run: Run, ledger: Path):
    assert run("verify", "--job", 2, "--out", "two.jsonl").out == (
        "The proof of job 2 is in two.jsonl: 1 event, 1 change of keys.\n"
    )
    done = run("verify", "two.jsonl", "--keys", "keys.json")
    assert done.code == 0 and "2 inclusion proofs in a tree of 4 leaves" in done.out
    assert run("verify", "--job", 2).out.startswith('{"holdfast_proof":1,')
    assert run("verify", "--job", 9, "--out", "no.jsonl").code == 1
    assert not (ledger / "no.jsonl").exists() and not (ledger / "no.jsonl.part").exists()


def test_a_proof_is_compared_with_its_own_head(run: Run, ledger: Path):
    assert run("verify", "--job", 2, "--out", "two.jsonl").code == 0
    assert run("verify", "two.jsonl", "--keys", "keys.json", "--head", "heads.txt").code == 0
    import holdfast

    with holdfast.open(f"sqlite:///{ledger}/holdfast.db") as opened:
        opened.enqueue("plain", {})
    assert run("seal", "--once", "--key", "main.key", "--anchor", "newer.txt").code == 0
    done = run("verify", "two.jsonl", "--keys", "keys.json", "--head", "newer.txt")
    assert done.code == 2 and "the head of size 4, which the proof leads to, is not among" in done.err
    assert "rewritten" not in done.err


def test_an_unfinished_head_is_skipped_and_reported(run: Run, ledger: Path):
    text = (ledger / "heads.txt").read_text()
    (ledger / "heads.txt").write_text(f"{text.rstrip()[:-9]}\n\n{text}")
    done = run("verify", "all.jsonl", "--keys", "keys.json", "--head", "heads.txt")
    assert done.code == 0 and "heads.txt: 1 passage skipped" in done.err


def test_a_removed_event_is_reported(run: Run, ledger: Path):
    lines = (ledger / "all.jsonl").read_text().splitlines(keepends=True)
    (ledger / "all.jsonl").write_text("".join(lines[:3] + lines[4:]))
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "The newest head was signed over 4 leaves" in done.out and "; 3 are here" in done.out


def test_a_changed_row_is_reported_in_the_ledgers_words(run: Run, ledger: Path):
    text = (ledger / "all.jsonl").read_text()
    head, row = text.split('{"job":', 1)
    (ledger / "all.jsonl").write_text(head + '{"job":' + row.replace('"status":"queued"', '"status":"failed"', 1))
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "job 1, line 6: status in its row is failed, its events say queued" in done.err


def test_unsigned_work_is_reported_if_workers_have_keys(run: Run, ledger: Path):
    import holdfast

    assert run("key", "new", "arm-1", "--role", "worker", "--key", "main.key").code == 0
    with holdfast.open(f"sqlite:///{ledger}/holdfast.db") as opened:
        opened.claim("arm-1", ["default"], limit=1)
    assert run("seal", "--once", "--key", "main.key").code == 0
    assert run("events", "export", "--out", "all.jsonl").code == 0
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 0 and "Of 1 attempt 1 was claimed under signed=none" in done.out
    done = run("verify", "all.jsonl", "--keys", "keys.json", "--require-signed", "liveness")
    assert (
        done.code == 1
        and "job 1, event 2 (claimed), line 8, position 6: attempt 1 was claimed under signed=none, but liveness is required"
        in done.err
    )


def test_unsealed_events_are_reported(run: Run, ledger: Path):
    import holdfast

    with holdfast.open(f"sqlite:///{ledger}/holdfast.db") as opened:
        opened.enqueue("plain", {})
    run("events", "export", "--out", "all.jsonl")
    done = run("verify", "all.jsonl", "--keys", "keys.json")
    assert done.code == 1 and "not sealed yet" in done.err and "1 is newer than the newest head" in done.out
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
def test_wrong_arguments_are_reported(arguments: tuple[str, ...], run: Run, ledger: Path):
    done = run("verify", *arguments)
    assert done.code == 2 and "Traceback" not in done.err, done


def test_an_export_with_json_needs_an_output_file(run: Run, ledger: Path):
    assert run("events", "export", "--json").code == 2
    answer = run("events", "export", "--out", "b.jsonl", "--json").answer["data"]
    assert answer["lines"]["events"] == 3 and (ledger / "b.jsonl").exists()
    assert run("events", "export", "--out", "no/where.jsonl").code == 2
