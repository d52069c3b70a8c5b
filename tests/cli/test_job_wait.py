"""`holdfast job wait` and `holdfast job result`."""

import json
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.cli import job_wait
from tests.cli.conftest import Start, Typed
from tests.contract.builders import cancelled, dead_lettered, failed, running, succeeded

NOT_SERVED = "No worker serves it: none that serves k in default is signed in to this ledger."


@pytest.fixture
def ask(typed: Typed, store_url: str) -> Any:
    """Run a command of `holdfast job` on the ledger, and return its exit code, its output and its answer with --json."""

    def ask(*words: object) -> tuple[int, str, Any]:
        said = [str(word) for word in ("job", *words, "--db", store_url)]
        plain, answer = typed(*said), typed(*said, "--json")
        assert plain.code == answer.code
        return plain.code, plain.out + plain.err, answer.answer

    return ask


def test_wait_succeeds_however_the_jobs_have_ended(ask: Any, real: Ledger) -> None:
    ids = [build(real).id for build in (succeeded, failed, dead_lettered, cancelled)]
    code, said, answer = ask("wait", *ids)
    assert (code, [(job["id"], job["status"]) for job in answer["data"]["jobs"]]) == (
        0,
        list(zip(ids, ["succeeded", "failed", "dead_lettered", "cancelled"], strict=True)),
    )
    assert said.splitlines()[2:] == [f"Job {ids[2]} is dead-lettered.", f"Job {ids[3]} is cancelled."]


def test_wait_fails_at_its_timeout_and_says_why(ask: Any, real: Ledger) -> None:
    done, waiting, other = succeeded(real), real.enqueue("k"), real.enqueue("k")
    code, said, answer = ask("wait", done.id, waiting.id, other.id, "--timeout", "10ms")
    words = f"job {waiting.id} is still queued after 0.01 s. {NOT_SERVED}"
    assert (code, said.splitlines()[0]) == (1, f"Failed: result_timeout: {words}")
    assert (answer["error_code"], answer["error"]) == ("result_timeout", words)
    assert answer["error_context"] == {"job_id": waiting.id, "status": "queued", "waiting": [waiting.id, other.id]}


def test_wait_says_soon_what_a_job_waits_for(typed: Typed, store_url: str, real: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    made = real.enqueue("k")
    monkeypatch.setattr(job_wait, "SILENT_SECONDS", 0.01)
    said = typed("job", "wait", str(made.id), "--timeout", "50ms", "--db", store_url)
    assert [line.partition(". ")[0] for line in said.err.splitlines()[:2]] == [
        f"job {made.id} is still queued after 0.01 s",
        f"Failed: result_timeout: job {made.id} is still queued after 0.05 s",
    ]
    assert typed("job", "wait", str(made.id), "--timeout", "50ms", "--db", store_url, "--json").err == ""


def test_wait_refuses_an_unknown_job_at_once(ask: Any, real: Ledger) -> None:
    code, _, answer = ask("wait", real.enqueue("k").id, 99)
    assert (code, answer["error_code"]) == (1, "not_found")


def test_wait_ends_when_the_job_ends(folder: Any, start: Start, typed: Typed) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        made = running(ledger)
        waiting = start("job", "wait", made.id)
        ledger.complete(made.fence, None)
        assert waiting.rest() == (0, f"Job {made.id} is succeeded.\n", "")
    assert "[default: 10m]" in " ".join(typed("job", "wait", "--help").out.split())


def test_result_prints_what_the_job_returned(ask: Any, real: Ledger) -> None:
    made = running(real)
    real.complete(made.fence, {"größe": [1, None]})
    code, said, answer = ask("result", made.id)
    assert (code, json.loads(said), answer["data"]) == (
        0,
        {"größe": [1, None]},
        {"job_id": made.id, "result": {"größe": [1, None]}},
    )


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (failed, "failed: no such page"),
        (dead_lettered, "was dead-lettered (policy_violation)"),
        (cancelled, "was cancelled: requested"),
    ],
)
def test_result_says_why_a_job_has_none(ask: Any, real: Ledger, build: Any, words: str) -> None:
    made = build(real)
    code, said, answer = ask("result", made.id)
    assert (code, answer["error_code"], answer["error"]) == (1, "no_result", f"job {made.id} {words}")
    assert said.startswith(f"Failed: no_result: job {made.id} {words}\n")


def test_a_job_that_has_not_ended_has_no_result(ask: Any, real: Ledger) -> None:
    made = real.enqueue("k")
    code, _, answer = ask("result", made.id)
    assert (code, answer["error_code"]) == (1, "result_timeout")
    assert answer["error"] == f"job {made.id} is still queued after 0 s. {NOT_SERVED}"
