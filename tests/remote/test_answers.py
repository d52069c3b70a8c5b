"""What a remote ledger makes of a server's answers, and what it sends."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, Ledger, Unavailable, ValidationError
from tests.remote.scripted import JSON, PAGE, Prepared, Scripted, refusal
from tests.support.server import RunningServer

ANY = "t"
"""A token: a scripted server takes any."""
ENQUEUED: Prepared = (201, JSON, {"job_ids": [7], "new": 1, "existing": [], "at": "2026-11-17T12:00:00Z"}, {})


def keys(script: Scripted) -> list[str | None]:
    return [headers.get("idempotency-key") for method, _, headers in script.asked if method == "POST"]


@pytest.mark.parametrize(
    "first",
    [
        refusal(503, "unavailable", retryable=True, context={"outcome": "none"}),
        refusal(503, "unavailable", retryable=True, context={"outcome": "unknown"}),
        refusal(429, "too_many_requests", retryable=True, headers={"Retry-After": "0"}),
        (502, PAGE, "<h1>Bad Gateway</h1>", {}),
    ],
    ids=["none", "unknown", "too many", "proxy"],
)
def test_a_request_is_sent_again_with_the_same_key(first: Any) -> None:
    with Scripted(first, ENQUEUED) as script, holdfast.open(script.url, token=ANY) as ledger:
        assert ledger.enqueue("index_page").id == 7
    [one, two] = keys(script)
    assert one == two is not None


def test_a_given_request_id_is_the_key() -> None:
    with Scripted(ENQUEUED) as script, holdfast.open(script.url, token=ANY) as ledger:
        ledger.enqueue("index_page", request_id="orders/17 ü")
    assert [key and key.encode("latin-1").decode() for key in keys(script)] == ["orders/17 ü"]


def test_a_lock_is_not_waited_for_again() -> None:
    locked = refusal(503, "unavailable", retryable=True, context={"outcome": "none", "locked": True})
    with Scripted(locked) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(Unavailable) as caught:
        ledger.enqueue("index_page")
    assert (caught.value.locked, caught.value.context) == (True, {"outcome": "none"})


def test_an_unknown_code_is_an_error_with_that_code() -> None:
    answer = refusal(409, "out_of_ink", retryable=True, context={"colour": "red"})
    with Scripted(answer) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(HoldfastError) as caught:
        ledger.enqueue("index_page")
    error = caught.value
    assert (type(error), error.code, error.message, error.action) == (HoldfastError, "out_of_ink", "no", "Wait.")
    assert (error.retryable, error.context) == (True, {"colour": "red"})


@pytest.mark.parametrize(
    "answer",
    [
        (200, PAGE, "<h1>Welcome</h1>", {}),
        (302, PAGE, "", {"Location": "https://elsewhere.example/v1/jobs"}),
        (200, JSON, "[]", {}),
        (500, JSON, {"error": "no"}, {}),
    ],
    ids=["page", "redirect", "other JSON", "other error"],
)
def test_an_answer_that_is_not_holdfasts_leaves_the_outcome_unknown(answer: Any) -> None:
    with Scripted(answer) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(Unavailable) as caught:
        ledger.enqueue("index_page")
    assert (caught.value.outcome, caught.value.retryable) == ("unknown", False)
    assert len(script.asked) == 3


def test_a_read_that_fails_has_changed_nothing() -> None:
    with (
        Scripted((200, PAGE, "<h1>Welcome</h1>", {})) as script,
        holdfast.open(script.url, token=ANY) as ledger,
        pytest.raises(Unavailable) as caught,
    ):
        ledger.now()
    assert caught.value.outcome == "none"


def test_bad_arguments_are_refused_without_a_request() -> None:
    with Scripted() as script, holdfast.open(script.url, token=ANY) as ledger:
        for call in (
            lambda: ledger.enqueue("", {}),
            lambda: ledger.enqueue("index_page", {"n": float("nan")}),
            lambda: ledger.enqueue("index_page", connection=object()),
            lambda: ledger.claim("w-1", []),
            lambda: ledger.list(status="no such status"),
            lambda: ledger.pause(""),
        ):
            with pytest.raises(ValidationError):
                call()
    assert len(script.asked) == 2


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(ValidationError, match="https"):
        holdfast.open("http://jobs.example.org", token=ANY)


@pytest.mark.parametrize("url", ["https://kim:secret@jobs.example.org", "https://jobs.example.org/?token=t", "https://"])
def test_a_url_has_no_secrets(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        holdfast.open(url, token=ANY)
    assert "secret" not in str(caught.value)


def test_the_token_comes_from_a_file_or_the_environment(
    served: RunningServer, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    with holdfast.open(served.url, token_file=file) as ledger:
        assert ledger.position() == 0
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(file))
    with holdfast.open(served.url) as ledger:
        assert ledger.position() == 0
    monkeypatch.setenv("HOLDFAST_TOKEN", "another")
    with pytest.raises(HoldfastError) as caught:
        holdfast.open(served.url)
    assert caught.value.code == "unauthenticated"
    file.chmod(0o644)
    with pytest.raises(ValidationError, match=re.escape("other users have access")):
        holdfast.open(served.url, token_file=file)


def test_a_ledger_is_not_used_after_a_fork(remote: Ledger) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            remote.now()
        except Unavailable as error:
            os._exit(0 if not error.retryable else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert remote.position() == 0


def test_a_closed_ledger_is_not_used(remote: Ledger) -> None:
    remote.close()
    with pytest.raises(Unavailable) as caught:
        remote.now()
    assert not caught.value.retryable


# Who acts


def test_a_worker_is_named_by_its_token(served: RunningServer, behind: Ledger) -> None:
    text = served.client("worker", "w-1").token
    with holdfast.open(served.url, token=text) as ledger:
        job = ledger.enqueue("index_page")
        [held] = ledger.claim("w-1", start=True)
        ledger.complete(held.fence)
        with pytest.raises(HoldfastError) as caught:
            ledger.claim("w-2")
        assert caught.value.code == "forbidden"
        assert held.fence.incarnation == ledger.incarnation
    assert behind.events(job.id)[-1].actor == f"worker:w-1#{held.fence.incarnation}"


def test_an_operator_is_named_by_its_token(served: RunningServer, behind: Ledger) -> None:
    with holdfast.open(served.url, token=served.client("operator", "kim").token) as ledger:
        job = ledger.enqueue("index_page")
        ledger.cancel(job.id)
        ledger.pause("default", reason="lunch")
        with pytest.raises(HoldfastError) as caught:
            ledger.enqueue("index_page", actor="ann")
        assert caught.value.code == "forbidden"
    assert [event.actor for event in behind.events(job.id)] == ["operator:kim", "operator:kim"]
    assert behind.queues()[0].paused_by == "kim"


def test_names_may_have_any_letter(remote: Ledger, behind: Ledger) -> None:
    job = remote.enqueue("prüfen", {"é": "€"}, queue="kö/ln?", actor="Zoë", request_id="größe-1")
    [held] = remote.claim("wörker", ["kö/ln?"], incarnation="böot")
    assert (held.id, held.args, held.fence.worker) == (job.id, {"é": "€"}, "wörker")
    remote.pause("kö/ln?")
    assert set(behind.paused()) == {"kö/ln?"}
    assert behind.events(job.id)[0].request_id == "größe-1"
