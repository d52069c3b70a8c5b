"""Limits of restarts, which outlive the supervisor."""

import json
import signal
from pathlib import Path

import pytest

import holdfast
from tests.supervise.conftest import QUICK, Ended, Supervise
from tests.support.waiting import wait_until

CRASH = ["--", "sh", "-c", "echo ran; exit 3"]


def states(url: str) -> list[tuple[str, int, str | None, int]]:
    with holdfast.open(url) as ledger:
        return [(state.name, state.run, state.terminal_reason, state.restarts) for state in ledger.runs()]


def test_a_crash_loop_opens_the_breaker(ended: Ended, url: str) -> None:
    done = ended("--name", "web", *QUICK, "--breaker-failures", 3, *CRASH)
    assert (done.code, done.out) == (1, "ran\n" * 3)
    assert "web/1 is not started again: circuit_breaker_open, after 2 restarts" in done.err
    logged = [(line["message"], line["level"]) for line in map(json.loads, done.err.splitlines()[:-2])]
    again = [("started", "INFO"), ("ended", "WARNING"), ("restarting", "INFO")]
    assert logged == [*again, *again, *again[:2], ("over", "ERROR")]
    assert states(url) == [("web", 1, "circuit_breaker_open", 2)]


def test_more_restarts_than_the_window_allows_end_the_run(ended: Ended, url: str) -> None:
    done = ended("--name", "web", *QUICK, "--max-restarts", 2, "--breaker-failures", 100, *CRASH)
    assert (done.code, done.out) == (1, "ran\n" * 3)
    assert states(url) == [("web", 1, "restart_limit_exceeded", 2)]


def test_an_open_breaker_stays_open_until_an_operator_resets_it(ended: Ended, url: str) -> None:
    assert ended("--name", "web", *QUICK, "--breaker-failures", 1, *CRASH).code == 1
    for _ in range(2):
        again = ended("--name", "web", "--", "echo", "ran")
        assert (again.code, again.out) == (1, "")
        assert "holdfast supervise --reset web" in again.err
    refused = ended("--name", "web", "--json", "--", "true")
    assert (refused.answer["error_code"], refused.code) == ("circuit_breaker_open", 1)
    assert ended("--reset", "web").out == "web may begin again.\n"
    assert " reset " in ended("--list").out
    assert ended("--name", "web", "--", "echo", "ran").out == "ran\n"
    assert states(url) == [("web", 2, "clean_exit", 0)]


def test_a_program_that_recovers_keeps_running(ended: Ended, folder: Path, url: str) -> None:
    done = ended("--name", "web", *QUICK, "--", "sh", "-c", "echo x >> tries; test $(wc -l < tries) = 3")
    assert (done.code, states(url)) == (0, [("web", 1, "clean_exit", 2)])


def test_after_a_clean_exit_a_new_run_begins(ended: Ended, url: str) -> None:
    for number in (1, 2):
        assert ended("--name", "web", "--", "true").code == 0
        assert states(url) == [("web", number, "clean_exit", 0)]


def test_a_run_continues_after_its_supervisor_was_killed(supervise: Supervise, ended: Ended, url: str) -> None:
    """Each killed supervisor counts as a restart of its program."""
    for restarts in range(3):
        one = supervise("--name", "web", *QUICK, "--max-restarts", 2, "--", "sh", "-c", "echo ran; exec sleep 1000")
        if restarts:
            assert one.logged("continuing")["restarts"] == restarts - 1
        assert one.line() == "ran"
        one.signal(signal.SIGKILL)
        one.rest()
    last = ended("--name", "web", *QUICK, "--max-restarts", 2, "--", "echo", "ran")
    assert (last.code, last.out) == (1, "")
    assert states(url) == [("web", 1, "restart_limit_exceeded", 2)]


def test_a_second_supervisor_of_one_name_is_refused(supervise: Supervise, ended: Ended) -> None:
    one = supervise("--name", "web", "--", "sh", "-c", "echo ran; exec sleep 1000")
    assert one.line() == "ran"
    second = ended("--name", "web", "--json", "--", "echo", "ran")
    assert (second.code, second.answer["error_code"]) == (1, "conflict")
    assert "another --name" in second.answer["suggested_action"]
    assert ended("--name", "api", "--", "echo", "ran").out == "ran\n"


def test_a_supervisor_that_lost_its_duty_ends_its_command(supervise: Supervise, url: str) -> None:
    one = supervise("--name", "web", "--", "sh", "-c", 'echo "$$"; exec sleep 1000')
    one.line()
    with holdfast.open(url) as ledger:
        wait_until(ledger.runs)
        found = ledger.supervision.find("web")
        assert found is not None
        ledger.supervision.drop("web", found.holder)
        assert ledger.supervision.take("web", "another", 60)
    done = one.rest()
    assert (done.code, "another supervisor has taken 'web' over" in done.err) == (1, True)
    assert states(url) == [("web", 1, None, 0)]


def test_a_supervisor_that_waits_for_the_next_start_handles_signals(supervise: Supervise, url: str) -> None:
    one = supervise("--name", "web", "--backoff", "1h", "--backoff-max", "1h", *CRASH)
    one.logged("restarting")
    one.signal()
    assert one.rest().code == 0
    assert states(url) == [("web", 1, "operator_shutdown", 1)]


@pytest.mark.parametrize("store", ["postgres"])
def test_supervision_works_on_postgresql(ended: Ended, postgres_url: str, store: str) -> None:
    done = ended("--db", postgres_url, "--name", "web", *QUICK, "--breaker-failures", 2, *CRASH)
    assert (done.code, done.out) == (1, "ran\n" * 2)
    assert ended("--db", postgres_url, "--name", "web", *CRASH).code == 1
    assert ended("--db", postgres_url, "--reset", "web").code == 0


# Messages


@pytest.mark.parametrize("policy", ["max_restarts=0", "policy.toml"])
def test_a_policy_can_be_given_as_one_argument(ended: Ended, folder: Path, policy: str) -> None:
    (folder / "policy.toml").write_text('max_restarts = 0\nwindow = "1h"\nbackoff = "1ms"\n')
    assert ended("--policy", policy, *CRASH).out == "ran\n"
    assert ended("--policy", policy, "--name", "b", "--max-restarts", 1, "--backoff", "1ms", *CRASH).out == "ran\n" * 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a command after --"),
        (["--list", "--", "true"], 2, "give a command after --"),
        (["--max-restarts", 1_001, "--", "true"], 1, "max_restarts must be from 0 to 1000"),
        (["--breaker-failures", -1, "--", "true"], 1, "breaker_failures must be from 0 to 100"),
        (["--window", "1ms", "--", "true"], 1, "window must be from 1 s to 30 d"),
        (["--window", "10s", "--breaker-window", "1m", "--", "true"], 1, "breaker_window must not be longer than window"),
        (["--grace", "2h", "--", "true"], 1, "grace must be from 0 s to 1 h"),
        (["--stall-timeout", "soon", "--", "true"], 2, "is not a duration"),
        (["--policy", "restarts=3", "--", "true"], 1, "a run's policy has no 'restarts'"),
        (["--policy", "max_restarts=many", "--", "true"], 2, "are whole numbers"),
        (["--policy", "nowhere.toml", "--", "true"], 2, "nowhere.toml"),
        (["--name", "", "--", ""], 1, "name must be a printable text"),
        (["--reset", "unknown"], 1, "nothing was ever supervised as 'unknown'"),
    ],
)
def test_wrong_arguments_are_refused(ended: Ended, arguments: list[object], code: int, message: str) -> None:
    done = ended(*arguments)
    assert (done.code, done.out) == (code, "")
    assert any(message in line for line in done.err.splitlines()[-2:])
    assert "Traceback" not in done.err


def test_supervised_runs_are_listed(ended: Ended, url: str) -> None:
    assert ended("--list").code == 3
    with holdfast.open(url):
        assert ended("--list").out == "There are no supervised runs.\n"
    ended("--name", "web", "--policy", "max_restarts=0", *CRASH)
    assert "restart_limit_exceeded" in ended("--list").out
    [state] = ended("--list", "--json").answer["data"]["runs"]
    assert (state["name"], state["needs_reset"], state["exit_code"]) == ("web", True, 3)
    assert state["receipt"]["run_id"] == "web/1"
    assert state["receipt"]["health_verdict"] == "crashed"


def test_an_orderly_end_has_a_json_envelope(ended: Ended) -> None:
    """Options after the program belong to the program, also --json."""
    done = ended("--name", "web", "--json", "--", "test", "--json", "=", "--json")
    assert done.answer["data"]["reason"] == "clean_exit"
    assert '"message":"receipt"' in done.err
    plain = ended("--name", "web", "--", "nowhere", "--json")
    assert (plain.code, plain.out) == (127, "")


def test_a_run_is_named_by_its_program_and_arguments(ended: Ended, url: str) -> None:
    for words in (["/bin/sh", "-c", "exit 0"], ["sh", "-c", "true"], ["true"]):
        done = ended("--json", "--", *words)
        assert done.code == 0
        names = {json.loads(line)["run"] for line in done.err.splitlines()}
        assert len(names) == 1
    long = ended("--json", "--", "true", "é" * 300)
    assert long.code == 0
    ended("--name", "mine", "--", "true", "é")
    with holdfast.open(url) as ledger:
        found = sorted(state.name for state in ledger.runs())
    [cut] = [name for name in found if "…" in name]
    assert len(cut.encode()) <= 200
    assert found == sorted(["sh -c 'exit 0'", "sh -c true", "true", cut, "mine"])
