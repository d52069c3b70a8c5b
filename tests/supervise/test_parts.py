"""The parts of a supervisor, each by itself."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.supervise import LogReporter, describe
from holdfast.core.restart import TerminalReason
from holdfast.errors import Conflict, HoldfastError
from holdfast.supervise import ResetNeeded, RunPolicy, run, run_policy
from holdfast.supervise.event_loop import Timers
from holdfast.supervise.run import SupervisedRun
from holdfast.testing import ManualClock
from tests.cli.conftest import command, environment


def begin(ledger: holdfast.Ledger, **numbers: object) -> SupervisedRun:
    return SupervisedRun(ledger.supervision, "web", run_policy(numbers), ["serve"], None)


# Processes


def test_a_process_that_is_gone_is_known_to_be_dead() -> None:
    program = "from holdfast.supervise import run; print(run.process_identity('n'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.is_dead_process(done.stdout.strip())
    assert not run.is_dead_process(run.process_identity("n"))


@pytest.mark.parametrize("change", ["another boot", "another process under its number"])
def test_a_reused_process_id_is_dead_but_a_process_of_another_boot_is_unknown(change: str) -> None:
    system, pid, began, nonce = run.process_identity("n").split("/")
    if change == "another boot":
        assert not run.is_dead_process(f"x{system}/1{pid}/{began}/{nonce}")
    else:
        assert run.is_dead_process(f"{system}/{pid}/1{began}/{nonce}")


@pytest.mark.parametrize("holder", ["", "another", "a/b/c/d", "//1/n", "x/1/2"])
def test_a_holder_of_another_kind_is_not_dead(holder: str) -> None:
    assert not run.is_dead_process(holder)


# Runs


def test_a_stored_run_is_continued(ledger: holdfast.Ledger) -> None:
    first = begin(ledger)
    assert [first.restart(tick) for tick in (1_000, 2_000)] == [1, 2]
    first.save(first.snapshot())
    first.release()
    second = begin(ledger)
    assert (second.is_new, second.run_id, second.body.restarts) == (False, "web/1", 2)
    assert second.body.incarnation == first.body.incarnation
    assert second.restart(3_000) == 3


@pytest.mark.parametrize("reason", list(TerminalReason))
def test_a_run_with_a_terminal_reason_ends_or_needs_a_reset(ledger: holdfast.Ledger, reason: TerminalReason) -> None:
    first = begin(ledger)
    first.end(reason)
    first.end(TerminalReason.CLEAN_EXIT)
    first.save(first.snapshot())
    first.release()
    if reason in ("clean_exit", "operator_shutdown", "unrecoverable_error"):
        second = begin(ledger)
        assert (second.is_new, second.run_id, second.body.restarts) == (True, "web/2", 0)
        assert second.body.incarnation != first.body.incarnation
    else:
        with pytest.raises(ResetNeeded):
            begin(ledger)
        ledger.reset_run("web")
        assert begin(ledger).run_id == "web/2"


def test_an_older_snapshot_does_not_replace_a_newer_one(ledger: holdfast.Ledger) -> None:
    run = begin(ledger)
    older = run.snapshot()
    run.end(TerminalReason.CIRCUIT_BREAKER_OPEN)
    run.save(run.snapshot())
    run.save(older)
    assert ledger.runs()[0].terminal_reason == "circuit_breaker_open"


def test_a_supervisor_that_lost_its_duty_saves_nothing(ledger: holdfast.Ledger, clock: ManualClock) -> None:
    first = begin(ledger)
    first.save(first.snapshot())
    with pytest.raises(Conflict):
        begin(ledger)
    clock.advance(16)
    second = begin(ledger)
    second.save(second.snapshot())
    with pytest.raises(Conflict):
        first.save(first.snapshot())


def test_a_receipt_counts_the_restarts_in_the_window(ledger: holdfast.Ledger) -> None:
    from holdfast.liveness import HealthVerdict

    run = begin(ledger, window="10s", max_restarts=3)
    run.restart(1_000)
    run.restart(5_000)
    counts = [
        run.issue_receipt(tick, HealthVerdict.HEALTHY, uptime_ms=1, beat="1 2", episode=None, detail="é" * 300).restart_count
        for tick in (11_000, 11_001, 15_001)
    ]
    assert counts == [2, 1, 0]
    assert run.receipt is not None and run.receipt.has_valid_bounds()
    assert (run.receipt.run_id, run.receipt.max_restarts) == ("web/1", 3)


# Numbers


def test_the_backoff_doubles_up_to_its_maximum() -> None:
    policy = RunPolicy(backoff_ms=100, backoff_max_ms=1_000)
    assert [policy.backoff_seconds(attempt, 1.0) for attempt in (1, 2, 3, 4, 5, 1_000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert policy.backoff_seconds(1, 0.5) == 0.05


def test_a_shorter_window_shortens_the_window_of_the_breaker() -> None:
    assert run_policy({"window": "10s"}).breaker_window_ms == 10_000
    assert run_policy({"window": None}).breaker_window_ms == 30_000
    with pytest.raises(HoldfastError):
        run_policy({"window": "10s", "breaker_window": "11s"})


# Time


def test_timers_run_in_order_and_can_be_cancelled() -> None:
    clock, done = ManualClock(), []
    timers = Timers(clock.monotonic)
    assert timers.timeout_s() is None

    def first() -> None:
        done.append("first")
        timers.cancel(second)

    def second() -> None:
        done.append("second")

    timers.call_later(2, first)
    timers.call_later(5, second)
    timers.call_within(3, second)
    timers.call_within(9, second)
    assert timers.timeout_s() == 2
    timers.run_due()
    assert done == []
    clock.advance(3)
    assert timers.timeout_s() == 0
    timers.run_due()
    assert (done, timers.timeout_s()) == (["first"], None)


# Log lines


@pytest.mark.parametrize(
    ("what", "facts", "said"),
    [
        ("started", {"run_id": "web/1", "pid": 7, "restarts": 0}, "started, pid 7"),
        ("started", {"run_id": "web/1", "pid": 7, "restarts": 1}, "started, pid 7, after 1 restart"),
        ("continuing", {"run_id": "web/1", "restarts": 2}, "continuing, after 2 restarts"),
        ("restarting", {"attempt": 1, "max_restarts": 10, "wait_ms": 125}, "restarting in 125 ms (1 of 10)"),
        ("stalled", {"silent_ms": 900, "beats": 3, "pid": 7}, "has hung: silent for 900 ms"),
        ("ended", {"exit_code": 3}, "ended with exit code 3"),
        ("ended", {"exit_code": -15}, "ended by SIGTERM"),
        ("ended", {"exit_code": -99}, "ended by signal 99"),
        ("ended", {"exit_code": None}, "ended with an unknown exit code"),
        ("ended", {"exit_code": 127, "error": "No such file"}, "ended with exit code 127: No such file"),
        ("over", {"run_id": "web/1", "reason": "clean_exit", "restarts": 0}, "over, after 0 restarts: clean_exit"),
        ("stopping", {"signal": "SIGTERM"}, "stopping: signal SIGTERM"),
    ],
)
def test_the_text_of_each_log_line(what: str, facts: dict[str, object], said: str) -> None:
    assert describe(what, facts) == said


def test_a_program_that_was_stopped_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    observer = LogReporter("web", receipts=False)
    observer.on_event("stopping", signal="SIGTERM")
    observer.on_event("ended", exit_code=-15)
    observer.on_event("over", run_id="web/1", reason="operator_shutdown", restarts=0)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3


def test_on_a_terminal_output_and_log_lines_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """The program and its supervisor write to the same terminal, each in whole lines."""
    ours, theirs = pty.openpty()
    program = ["--name", "tty", "--max-restarts", "0", "--", "sh", "-c", "echo one; echo two; exit 3"]
    with subprocess.Popen(command("supervise", *program), cwd=tmp_path, env=environment(), stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    text = re.sub(r"\r\x1b\[K(opening the ledger: \d+ s)?", "", said.decode())  # shown on a busy machine
    lines = text.splitlines()
    assert "\x1b[2K" not in text and '"message"' not in text
    assert [line for line in lines if not line.startswith("tty: started, pid ")][1:-2] == [
        "one",
        "two",
        "tty: ended with exit code 3",
        "tty: over, after 0 restarts: restart_limit_exceeded",
    ]
    assert "Failed: tty/1 is not started again: restart_limit_exceeded, after 0 restarts" in lines[-2]
    assert "Try: Find out why" in lines[-1]


def _read(terminal: int) -> bytes:
    """Read a terminal. On Linux a closed other end is an error."""
    try:
        return os.read(terminal, 4_096)
    except OSError:
        return b""


# Worker processes

WAITS = """
import os, signal
from holdfast.supervise.run import RunPolicy
from holdfast.supervise.worker_processes import WorkerProcesses

def work(number: int) -> int:
    starts = os.open("starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(starts, b"x")
    if os.fstat(starts).st_size <= 20:
        return 3
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()

print(tuple(WorkerProcesses(1, work, RunPolicy(max_restarts=1, breaker_failures=1, backoff_ms=1, backoff_max_ms=1)).run()))
"""


def test_a_worker_that_cannot_reach_its_ledger_is_started_again_past_every_limit(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("(0, 0)\n", "")
    assert (tmp_path / "starts").read_text() == "x" * 21
