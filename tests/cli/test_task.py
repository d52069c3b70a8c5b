"""`holdfast task` and `holdfast resume`: an agent is a new process at every call."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from tests.cli.conftest import Done, Run
from tests.contract.builders import queued
from tests.support.histories import problems
from tests.support.waiting import wait_until

TASK = {"id", "status", "claimed_by", "claimed_at", "claim_expires_at", "last_heartbeat_at", "attempt"}


@pytest.fixture
def ask(run: Run, store_url: str) -> Any:
    """Run a command as ada, with a new request id unless one is given."""
    numbers = iter(range(1, 1_000))

    def asking(*words: object, **env: str) -> Done:
        named = [] if "--request-id" in words else ["--request-id", f"r-{next(numbers)}"]
        return run(*words, *named, "--json", HOLDFAST_URL=store_url, **{"HOLDFAST_AGENT": "ada", **env})

    return asking


def test_an_agent_works_on_tasks_in_many_processes(real: Ledger, ask: Any) -> None:
    one, two = queued(real).id, queued(real).id
    brief = ask("resume").answer["data"]
    assert (brief["task"]["id"], brief["why"], brief["task"]["args"]) == (one, "next", {"n": 1})
    assert brief["tokens"] > 0
    assert [entry.get("alias") for entry in brief["history"]] == [None, "task_claimed", None]
    beat = ask("task", "heartbeat", "--id", one, "--stage", "reading", "--checkpoint", '{"page": 3}').answer["data"]["task"]
    assert (beat["stage"], beat["attempt"]) == ("reading", 1)
    assert ask("task", "complete", "--id", one, "--result", '{"pages":  3}').answer["data"]["task"]["status"] == "succeeded"
    assert real.get(one).result == {"pages": 3}
    assert ask("task", "start", "--id", two, "--ttl", "1m").answer["data"]["task"]["claimed_by"] == "ada"
    failed = ask("task", "fail", "--id", two, "--error", "no paper", "--permanent").answer["data"]["task"]
    assert (failed["status"], real.get(two).last_error) == ("failed", {"message": "no paper"})
    nothing = ask("resume").answer["data"]
    assert (nothing["task"], nothing["why"], nothing["until"]) == (None, "nothing", None)
    assert problems(real) == []


def test_every_task_shows_its_holder_and_the_end_of_its_lease(real: Ledger, ask: Any, run: Run, store_url: str) -> None:
    one = queued(real).id
    queued(real)
    started = ask("task", "start", "--id", one).answer["data"]["task"]
    times = [datetime.fromisoformat(started[name]) for name in ("last_heartbeat_at", "claim_expires_at")]
    assert times[1] - times[0] == timedelta(minutes=5)
    listed = run("task", "list", "--json", "--db", store_url).answer["data"]["tasks"]
    got = run("task", "get", "--id", one, "--json", "--db", store_url).answer["data"]
    brief = ask("resume").answer["data"]
    for task in (started, *listed, got["task"], brief["task"]):
        assert task.keys() >= TASK
    assert got["history"][1]["alias"] == "task_claimed"
    held = run("task", "list", "--claimed-by", "ada", "--json", "--db", store_url).answer["data"]["tasks"]
    assert [task["id"] for task in held] == [one]


def test_starting_a_held_task_again_renews_it_for_the_given_ttl(real: Ledger, ask: Any) -> None:
    one = queued(real).id

    def lasts(*words: object) -> timedelta:
        task = ask(*words).answer["data"]["task"]
        assert task["attempt"] == 1
        return datetime.fromisoformat(task["claim_expires_at"]) - datetime.fromisoformat(task["last_heartbeat_at"])

    assert lasts("task", "start", one) == timedelta(minutes=5)
    assert lasts("task", "start", one, "--ttl", "1h") == timedelta(hours=1)
    assert lasts("task", "start", one) == timedelta(hours=1)
    assert lasts("task", "heartbeat", one) == timedelta(hours=1)
    assert lasts("resume", "--ttl", "10m") == timedelta(minutes=10)
    assert lasts("resume") == timedelta(minutes=10)
    assert problems(real) == []


HOOKS = """
import holdfast

app = holdfast.App()
print("imported", file=open("imported", "a"))

@app.validator
def positive(job, result):
    if result < 0:
        raise ValueError(f"{job.kind} below zero")
"""


def test_validators_from_holdfast_toml_check_results(real: Ledger, ask: Any, folder: Path) -> None:
    (folder / "hooks.py").write_text(HOOKS)
    (folder / "holdfast.toml").write_text('validators = "hooks:app"\n')
    one = queued(real).id
    ask("task", "start", one)
    ask("task", "heartbeat", one)
    assert not (folder / "imported").exists()
    done = ask("task", "complete", one, "--result", "-1")
    assert (done.code, done.answer["error_code"]) == (1, "refused_by_validator")
    assert "ValueError: index_page below zero" in done.answer["error"]
    assert "complete it with another result" in done.answer["suggested_action"]
    assert real.get(one).status == "running"
    assert ask("task", "complete", one, "--result", "1").answer["data"]["task"]["status"] == "succeeded"


@pytest.mark.parametrize(
    ("named", "code"),
    [('"nowhere:app"', "usage"), ('"hooks"', "usage"), ('"hooks:other"', "usage"), ('"broken:app"', "import_failed")],
)
def test_a_task_is_not_completed_if_its_validators_cannot_be_imported(
    real: Ledger, ask: Any, folder: Path, named: str, code: str
) -> None:
    (folder / "hooks.py").write_text(HOOKS)
    (folder / "broken.py").write_text("1 / 0\n")
    one = queued(real).id
    ask("task", "start", one)
    (folder / "holdfast.toml").write_text(f"validators = {named}\n")
    done = ask("task", "complete", one, "--result", "1")
    assert (done.code != 0, done.answer["error_code"]) == (True, code)
    assert done.answer["error"].startswith("validators in holdfast.toml: ")
    assert real.get(one).status == "running"


def test_a_page_of_held_tasks_is_filtered_before_the_limit(real: Ledger, ask: Any, run: Run, store_url: str) -> None:
    others, one = [queued(real).id for _ in range(3)], queued(real).id
    for id_ in others:
        real.claim_job(id_, "bob")
    ask("task", "start", "--id", one)
    for whose in (["--claimed-by", "ada"], ["--mine", "--agent", "ada"]):
        page = run("task", "list", *whose, "--limit", 2, "--json", "--db", store_url).answer["data"]
        assert ([task["id"] for task in page["tasks"]], page["next_after"]) == ([one], None)
    mine = ["task", "list", "--mine", "--json", "--db", store_url]
    assert run(*mine, HOLDFAST_AGENT="ada", HOLDFAST_SESSION="two").answer["data"]["tasks"] == []
    unnamed = run(*mine)
    assert (unnamed.code, unnamed.answer["suggested_action"]) == (2, "Add --agent NAME, or export HOLDFAST_AGENT=NAME.")


def test_refusals_have_a_reason(real: Ledger, ask: Any) -> None:
    one = queued(real).id
    ask("task", "start", "--id", one)
    taken = ask("task", "start", "--id", one, HOLDFAST_AGENT="bob")
    assert (taken.code, taken.answer["error_code"]) == (1, "lease_conflict")
    assert taken.answer["error_context"]["holder"] == "ada" and "held_until" in taken.answer["error_context"]
    assert ask("task", "heartbeat", "--id", one, HOLDFAST_SESSION="two").answer["error_code"] == "fence_lost"
    assert ask("task", "heartbeat", "--id", one, "--attempt", 2).answer["error_code"] == "fence_lost"
    released = ask("task", "release", "--id", one, "--attempt", 1, "--reason", "out of credits")
    assert released.answer["data"]["task"]["status"] == "queued"
    assert real.events(one)[-1].reason == "out of credits"
    refused = ask("task", "complete", "--id", 10**6).answer
    assert (refused["error_code"], refused["error"]) == ("not_found", "there is no task 1000000")
    half = ask("task", "heartbeat", "--id", 1, "--progress", "half")
    assert (half.code, "'half' is not a whole number" in half.answer["error"]) == (2, True)


@pytest.mark.parametrize("verb", ["start", "heartbeat", "complete", "fail", "release", "gc", "resume"])
def test_an_agent_name_is_required(run: Run, verb: str) -> None:
    words = ["resume"] if verb == "resume" else ["task", verb]
    which = [] if verb in ("gc", "resume") else [1, *(["--error", "no"] if verb == "fail" else [])]
    done = run(*words, *which, "--json")
    assert (done.code, done.answer["error_code"]) == (2, "usage")
    assert "--agent" in done.answer["error"]
    assert "--agent" in done.answer["suggested_action"]
    assert run(*words, *which).err.endswith(f"Try: {done.answer['suggested_action']}\n")


def test_a_request_id_is_drawn_and_shown(real: Ledger, run: Run, store_url: str) -> None:
    """The answer contains the request id, so that the same request can be sent again."""
    one = real.enqueue("index_page").id
    who = ("--agent", "ada", "--db", store_url, "--json")
    started = run("task", "start", one, *who).answer
    beats = [run("task", "heartbeat", one, *who).answer for _ in range(2)]
    drawn = [answer["request_id"] for answer in (started, *beats)]
    assert len(set(drawn)) == 3
    assert [event.request_id for event in real.events(one, types=["heartbeat"])] == drawn[1:]
    again = run("task", "heartbeat", one, "--request-id", drawn[2], *who).answer
    assert (again["data"]["task"]["replayed"], again["request_id"]) == (True, drawn[2])
    refused = run("task", "complete", 10**6, *who).answer
    assert (refused["error_code"], bool(refused["request_id"])) == ("not_found", True)


def test_json_from_a_file_and_from_standard_input(real: Ledger, ask: Any, folder: Path) -> None:
    one, two = queued(real).id, queued(real).id
    (folder / "result.json").write_text('{"text": "grüße"}')
    ask("task", "start", "--id", one)
    ask("task", "complete", "--id", one, "--result", "@result.json")
    assert real.get(one).result == {"text": "grüße"}
    ask("task", "start", "--id", two)
    for wrong in ("{", "@nowhere.json", "[" * 100_000):
        done = ask("task", "complete", "--id", two, "--result", wrong)
        assert (done.code, done.answer["error_code"]) == (2, "usage")
    assert "A text needs quotes of its own" in ask("task", "complete", "--id", two, "--result", "done").answer["error"]
    for wrong in ("5days", "soon"):
        done = ask("task", "start", "--id", two, "--ttl", wrong)
        assert (done.code, done.answer["error_code"]) == (2, "usage")
    assert ask("task", "start", "--id", two, "--ttl", "60").answer["success"]


def test_gc_lists_the_released_tasks(real: Ledger, ask: Any) -> None:
    one, kept = queued(real).id, queued(real).id
    for id_, ttl in ((one, "1s"), (kept, "1h")):
        real.claim_job(id_, "gone", ttl=ttl)
    collected = wait_until(lambda: (found := ask("task", "gc").answer["data"])["released"] and found, what="the claim expires")
    assert collected == {"released": [one], "more": False}
    assert ask("task", "gc").answer["data"] == {"released": [], "more": False}
    assert (real.get(one).status, real.get(kept).status) == ("queued", "claimed")


def test_text_answers(real: Ledger, run: Run, store_url: str) -> None:
    one = queued(real).id
    who = ("--agent", "ada", "--db", store_url)
    assert run("resume", *who, "--request-id", "a").out.startswith(f"Task {one}: index_page in ")
    assert run("task", "heartbeat", "--id", one, *who, "--request-id", "b").out.startswith(f"Task {one} is ada's until 20")
    real.cancel(one)
    beat = run("task", "heartbeat", "--id", one, *who, "--request-id", "c")
    assert beat.out.endswith("Cancellation is requested: stop, and release it.\n")
    assert run("task", "release", "--id", one, *who, "--request-id", "d").out == f"Task {one} is cancelled.\n"
    nothing = "There is nothing to do, and no task is left to wait for.\n"
    assert run("resume", *who, "--request-id", "e").out == nothing
    assert run("task", "get", "--id", one, "--db", store_url).out.startswith(f"Task {one}: index_page in ")
    assert run("task", "list", "--kind", "none", "--db", store_url).out == "There are no such tasks.\n"


def test_starting_a_task_shows_its_arguments(real: Ledger, run: Run, store_url: str) -> None:
    one = queued(real).id
    said = run("task", "start", "--id", one, "--agent", "ada", "--request-id", "a", "--db", store_url).out
    assert said.startswith(f"Task {one}: index_page in ")
    assert '  args            {"n":1}\n' in said and "  attempt         1\n" in said


def test_single_fields_of_an_answer(real: Ledger, run: Run, store_url: str) -> None:
    one = real.enqueue("draft", {"text": 'a "task":{"id":5,"attempt":9}\n', "n": [1]}).id
    who = ("--agent", "ada", "--db", store_url)
    fields = [word for name in ("task.id", "task.attempt", "task.args.n", "nothing.then") for word in ("--field", name)]
    assert run("resume", *who, "--request-id", "a", *fields).out == f"{one}\n1\n[1]\n\n"
    text = run("task", "start", "--id", one, *who, "--request-id", "b", "--field", "task.args.text").out
    assert text == 'a "task":{"id":5,"attempt":9}\\n\n'
    assert run("task", "complete", "--id", one, *who, "--request-id", "c", "--field", "task.status").out == "succeeded\n"
    assert run("resume", *who, "--request-id", "d", *fields).out == "\n\n\ndone\n"


def test_a_field_that_no_answer_has_is_refused_before_anything_is_done(real: Ledger, run: Run, store_url: str) -> None:
    one = queued(real).id
    who = ("--agent", "ada", "--db", store_url, "--request-id", "a")
    for wrong in ("id", "task.idd", "task.id.more", "tokens.x"):
        done = run("resume", *who, "--field", wrong)
        assert (done.code, done.out) == (2, "")
        assert "Try: See what there is: holdfast schema resume" in done.err
    assert run("task", "start", "--id", one, *who, "--field", "why").code == 2
    assert run("resume", *who, "--field", "task.id", "--json").code == 2
    assert real.get(one).status == "queued"


def test_the_text_says_why_there_is_no_task_and_when_to_try_again(real: Ledger, ask: Any, run: Run, store_url: str) -> None:
    one = queued(real).id
    queued(real, depends_on=[one])
    ask("task", "start", "--id", one)
    bob = ("--agent", "bob", "--db", store_url)
    said = run("resume", *bob, "--request-id", "a").out
    assert said == "There is nothing to do now: 1 held by others, 1 waiting for other tasks. Resume again in a minute.\n"
    queued(real, delay="1h")
    assert "1 scheduled for later. Resume again at 20" in run("resume", *bob, "--request-id", "b").out


def test_the_second_line_says_what_to_do(real: Ledger, ask: Any, run: Run, store_url: str) -> None:
    one = queued(real).id
    ask("task", "start", "--id", one)
    done = run("task", "start", "--id", one, "--agent", "bob", "--request-id", "a", HOLDFAST_URL=store_url)
    first, second = done.err.splitlines()
    assert first.startswith(f"Failed: lease_conflict: task {one} is held by ada, until ")
    assert second == "Try: Take another task: holdfast resume --agent bob"


@pytest.mark.parametrize("words", ["resume", "task start --id 1", "task heartbeat --id 1", "task gc"])
def test_a_folder_without_a_ledger_is_reported(run: Run, folder: Path, words: str) -> None:
    done = run(*words.split(), "--agent", "ada", "--request-id", "a", "--json")
    assert (done.code, done.answer["error_code"]) == (3, "no_ledger")
    assert not list(folder.glob("*.db*"))


def test_suggested_commands_name_the_ledger_of_the_call(run: Run, folder: Path) -> None:
    url = f"sqlite:///{folder}/far.db"
    with holdfast.open(url) as far:
        Agent(far, "ada").start(queued(far).id)
    for db in (["--db", url], [f"--db={url}"]):
        asked = ["task", "start", "--id", 1, "--agent", "bob", "--request-id", "r", *db]
        wanted = f"Take another task: holdfast resume --db {url} --agent bob"
        assert run(*asked, "--json").answer["suggested_action"] == wanted
        assert run(*asked).err.splitlines()[1] == f"Try: {wanted}"
    assert run("doctor", "--db", "sqlite:///nowhere.db").err.count("--db") == 2
