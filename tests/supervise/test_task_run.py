"""`holdfast task run`: an agent's loop around a real command."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.errors import Conflict
from holdfast.keeping.signals import REPEAT_SECONDS
from holdfast.supervise import task_attempt, task_loop
from tests.cli.conftest import Done, Running, command, environment
from tests.supervise.conftest import is_alive
from tests.support.histories import problems
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

Start = Callable[..., Running]
Ran = Callable[..., Done]


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with holdfast.open(url) as ledger:
        yield ledger


@pytest.fixture
def start(folder: Path, ledger: Ledger) -> Iterator[Start]:
    """Start the loop with a shell command."""
    running: list[Running] = []

    def starter(script: str, *options: str, program: list[str] | None = None) -> Running:
        words = ["task", "run", "--agent", "ada", *options, "--", *(program or ["sh", "-c", script])]
        running.append(Running(command(*words), folder, environment()))
        return running[-1]

    yield starter
    for one in running:
        one.close()


@pytest.fixture
def ran(start: Start) -> Ran:
    return lambda *words, **given: start(*words, **given).rest()


def types(ledger: Ledger, id_: int) -> list[str]:
    return [event.type.value for event in ledger.events(id_)]


def change_turn(ledger: Ledger, folder: Path, change: str) -> None:
    """Change the duty of ada's loop from another process, because closing a file here would end this process's locks on it."""
    duty = task_loop.SessionLock(ledger, Agent(ledger, "ada"), "", lambda: None).duty_name
    program = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    assert db.execute(f"UPDATE holdfast_duties SET {sys.argv[3]} WHERE name = ?", (sys.argv[2],)).rowcount == 1
"""
    subprocess.run([sys.executable, "-c", program, folder / "holdfast.db", duty, change], check=True)


def begun(folder: Path) -> None:
    wait_until((folder / "begun").exists, what="the command runs")


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("""echo '{"pages": 3}'""", {"pages": 3}),
        ("echo 12", 12),
        ("printf 'two\\nlines\\n'", "two\nlines"),
        ('echo \'{"a": 1, "a": 2}\'', '{"a": 1, "a": 2}'),
        ("true", None),
    ],
)
def test_standard_output_is_the_result(ledger: Ledger, ran: Ran, output: str, result: object) -> None:
    job = ledger.enqueue("k")
    done = ran(f"cat > /dev/null; {output}", "--json")
    assert (done.code, done.answer["data"]) == (0, {"tasks": {"succeeded": 1, "failed": 0, "released": 0, "lost": 0}})
    assert ledger.get(job.id).result == result


def test_the_command_gets_the_brief_and_its_environment(ledger: Ledger, ran: Ran, folder: Path, url: str) -> None:
    long = "x" * 20_000
    job = ledger.enqueue("k", {"long": long})
    ran("cat > brief; env > environment", "--once")
    brief = json.loads((folder / "brief").read_text())
    assert (brief["task"]["id"], brief["task"]["args"], brief["why"]) == (job.id, {"long": long}, "next")
    found = dict(line.partition("=")[::2] for line in (folder / "environment").read_text().splitlines())
    assert {name: found[f"HOLDFAST_{name}"] for name in ("TASK", "ATTEMPT", "AGENT", "SESSION", "URL", "BEAT_FD")} == {
        "TASK": str(job.id), "ATTEMPT": "1", "AGENT": "ada", "SESSION": "agent", "URL": "sqlite:///holdfast.db", "BEAT_FD": "3",
    }  # fmt: skip


def test_the_loop_runs_until_no_task_is_left(ledger: Ledger, ran: Ran) -> None:
    jobs = [ledger.enqueue("k", queue=queue) for queue in ("a", "a", "b")]
    done = ran("echo $HOLDFAST_TASK", "--queue", "a")
    assert done.out == "Tasks: 2 succeeded.\n"
    assert [ledger.get(job.id).status for job in jobs] == ["succeeded", "succeeded", "queued"]
    assert ran("true", "--queue", "a").out == "There was nothing to do.\n"
    assert problems(ledger) == []


@pytest.mark.parametrize(
    ("script", "status", "reason", "error"),
    [
        (
            "echo first >&2; echo no route >&2; exit 3",
            "failed",
            None,
            {"message": "no route", "exit_code": 3, "stderr": "first\nno route"},
        ),
        ("exit 75", "queued", None, {"message": "the command ended with 75", "exit_code": 75}),
        (
            "kill -KILL $$",
            "queued",
            "infrastructure_failure",
            {"message": "the command was ended by a signal", "exit_code": -9},
        ),
    ],
)
def test_the_exit_code_selects_the_kind_of_failure(
    ledger: Ledger, ran: Ran, script: str, status: str, reason: str | None, error: dict[str, object]
) -> None:
    job = ledger.enqueue("k", policy={"backoff_base": "1h", "backoff_max": "1h"})
    done = ran(script)
    left = " Left: 1 scheduled for later." if status == "queued" else ""
    assert (done.code, done.out) == (0, f"Tasks: 1 failed.{left}\n")
    then = "it is tried again" if status == "queued" else "it is not tried again"
    assert f"Task {job.id}: failed, {then}: {error['message']}\n" in done.err
    found = ledger.get(job.id)
    assert (found.status, found.reason_code, found.last_error) == (status, reason, error)


@pytest.mark.parametrize("output", ["head -c 1100000 /dev/zero", "printf '\\377'"])
def test_output_that_cannot_be_kept_is_a_failure(ledger: Ledger, ran: Ran, output: str) -> None:
    job = ledger.enqueue("k")
    assert ran(output).out == "Tasks: 1 failed.\n"
    assert ledger.get(job.id).last_error["message"].startswith("its output cannot be kept: ")


def test_output_that_a_validator_refuses_is_a_failure(ledger: Ledger, ran: Ran, folder: Path) -> None:
    hooks = "import holdfast\napp = holdfast.App()\napp.validator(lambda job, result: result > 0)\n"
    (folder / "hooks.py").write_text(hooks)
    (folder / "holdfast.toml").write_text('validators = "hooks:app"\n')
    bad, good = ledger.enqueue("k", {"result": 0}), ledger.enqueue("k", {"result": 1})
    program = "import json, sys; print(json.load(sys.stdin)['task']['args']['result'])"
    done = ran("", program=["python3", "-c", program])
    assert done.out == "Tasks: 1 succeeded, 1 failed.\n"
    assert f"Task {bad.id}: failed, it is dead-lettered: job {bad.id} is not completed: <lambda> refused the result\n" in done.err
    assert (ledger.get(bad.id).status, ledger.get(bad.id).reason_code) == ("dead_lettered", "validation_failed")
    assert ledger.get(good.id).status == "succeeded"


def test_lines_to_descriptor_3_are_kept(ledger: Ledger, ran: Ran) -> None:
    job = ledger.enqueue("k")
    lines = [
        '{"stage": "two", "progress": 2}',
        "just a beat",
        '{"checkpoint": {"at": 1}}',
        '{"checkpoint": {"at": 40}}',
        '{"progress": "many"}',
        '{"checkpoint": [1,',
    ]
    done = ran("; ".join(f"echo '{line}' >&3" for line in lines))
    assert "a line on descriptor 3 is not recorded: progress" in done.err
    found = ledger.get(job.id)
    assert (found.status, found.stage, found.progress, found.checkpoint) == ("succeeded", "two", 2, {"at": 40})


def test_an_unknown_name_on_descriptor_3_is_reported(ledger: Ledger, ran: Ran) -> None:
    job = ledger.enqueue("k")
    done = ran("""echo '{"checkpont": 1, "stage": "two"}' >&3""")
    assert "a line on descriptor 3 is not recorded: checkpont is none of stage, progress and checkpoint" in done.err
    assert (ledger.get(job.id).stage, ledger.get(job.id).checkpoint) == ("two", None)


def test_the_claim_is_renewed_while_the_command_runs(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    running = start("touch begun; while [ ! -e go ]; do sleep 0.05; done", "--ttl", "2s")
    wait_until(lambda: types(ledger, job.id).count("heartbeat") >= 3)
    (folder / "go").touch()
    assert running.rest().code == 0
    assert ledger.get(job.id).attempt == 1
    assert "stalled" not in types(ledger, job.id)


def test_a_soft_cancel_is_noticed_with_the_first_beat_of_a_long_claim(ledger: Ledger) -> None:
    job = ledger.enqueue("k")
    agent = Agent(ledger, "ada")
    task, policy = agent.start(job.id, ttl="1h"), ledger.get(job.id).policy
    assert policy is not None
    now = [100.0]
    lease = task_attempt.TaskLease(agent, task, policy, now[0], lambda: now[0], lambda: None)
    ledger.cancel(job.id)
    now[0] += task_attempt.BEAT_SECONDS_MAX
    lease.tick()
    assert (lease.period, lease.cancel_requested) == (task_attempt.BEAT_SECONDS_MAX, True)


def test_a_lost_claim_ends_the_command(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    running = start("touch begun; sleep 600", "--ttl", "3s")
    begun(folder)
    ledger.cancel(job.id, hard=True)
    done = running.rest()
    assert (done.code, done.out) == (0, "Tasks: 1 lost.\n")
    assert f"Task {job.id} is no longer ada's" in done.err
    assert problems(ledger) == []


def test_a_soft_cancel_is_a_signal_to_stop(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    running = start("trap 'touch stopped; exit 1' TERM; touch begun; while :; do sleep 0.05; done", "--ttl", "3s")
    begun(folder)
    ledger.cancel(job.id)
    done = running.rest()
    assert done.code == 0
    assert f"Task {job.id}: released, it is cancelled.\n" in done.err
    assert (folder / "stopped").exists()
    assert ledger.get(job.id).status == "cancelled"


def test_a_signal_ends_the_loop_in_order(ledger: Ledger, start: Start, folder: Path) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    running = start("touch begun; sleep 600", "--wait")
    begun(folder)
    running.signal(signal.SIGTERM)
    done = running.rest()
    assert (done.code, done.out) == (0, "Tasks: 1 released.\n")
    assert [ledger.get(job.id).status for job in jobs] == ["queued", "queued"]


def test_the_loop_waits_for_tasks(ledger: Ledger, start: Start) -> None:
    running = start("echo done", "--wait", "--once")
    job = ledger.enqueue("k")
    assert running.rest().out == "Tasks: 1 succeeded.\n"
    assert ledger.get(job.id).result == "done"


def test_a_killed_loop_ends_its_command(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    running = start("echo $$ > pid; touch begun; sleep 600")
    begun(folder)
    pid = int((folder / "pid").read_text())
    running.signal(signal.SIGKILL)
    running.rest()
    wait_until(lambda: not is_alive(pid), what="it has ended")
    assert ledger.get(job.id).status == "running"


def test_a_command_that_cannot_be_started_costs_no_task(ledger: Ledger, ran: Ran, folder: Path) -> None:
    job = ledger.enqueue("k")
    done = ran("", "--json", program=["nosuch"])
    assert (done.code, done.answer["error_code"]) == (127, "unrecoverable_error")
    (folder / "plain").touch(mode=0o644)
    assert ran("", "--json", program=["./plain"]).code == 126
    assert types(ledger, job.id).count("requeued") == 2
    assert ledger.get(job.id).status == "queued"


def test_two_processes_cannot_be_one_agent(ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_loop, "LOCK_SECONDS", 1.0)

    def loop(session: str) -> task_loop.TaskLoop:
        agent = Agent(ledger, "ada", session=session)
        return task_loop.TaskLoop(
            ledger, agent, ["true"], task_loop.TaskSelection(None, None, 60_000), url=url, grace_s=1.0, report=lambda _: None
        )

    first = loop("agent")
    ledger.take_duty(task_loop.SessionLock(ledger, first.agent, "other", lambda: None).duty_name, "another process", ttl="1m")
    with pytest.raises(Conflict, match="another process runs tasks as ada in the session agent"):
        first.run(once=True, wait=False)
    assert loop("other").run(once=True, wait=False)["succeeded"] == 0


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_the_loop_works_on_postgresql(store_url: str, folder: Path) -> None:
    with holdfast.open(store_url) as there:
        job = there.enqueue("k", {"n": 1})
        running = Running(
            command("task", "run", "--agent", "ada", "--db", store_url, "--", "sh", "-c", "echo '{}' >&3; echo 1"),
            folder,
            environment(),
        )
        assert running.rest().code == 0
        assert there.get(job.id).result == 1
        assert problems(there) == []


def test_a_task_that_is_held_already_is_kept_for_the_ttl(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    Agent(ledger, "ada").start(job.id, ttl="30s")
    running = start("touch begun; while [ ! -e go ]; do sleep 0.05; done", "--ttl", "10m")
    begun(folder)
    ends = ledger.get(job.id).claim_expires_at
    assert ends is not None and ends - ledger.now() > timedelta(minutes=9)
    (folder / "go").touch()
    assert running.rest().out == "Tasks: 1 succeeded.\n"
    assert "stalled" not in types(ledger, job.id)


def test_late_output_is_read(ledger: Ledger, ran: Ran) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    program = ["python3", "-c", "import os; os.write(3, b'{\"stage\":\"last\"}\\n'); print('x' * 60_000)"]
    assert ran("", program=program).out == "Tasks: 2 succeeded.\n"
    for job in jobs:
        found = ledger.get(job.id)
        assert (len(found.result), found.stage) == (60_000, "last")


def test_the_last_line_on_descriptor_3_needs_no_newline(ledger: Ledger, ran: Ran) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    assert ran("""printf '{"checkpoint": 5}' >&3""").out == "Tasks: 2 succeeded.\n"
    assert [ledger.get(job.id).checkpoint for job in jobs] == [5, 5]


def test_a_short_task_is_not_renewed(ledger: Ledger, ran: Ran) -> None:
    job = ledger.enqueue("k")
    ran("true")
    assert types(ledger, job.id) == ["enqueued", "claimed", "started", "succeeded"]


def test_the_heartbeat_of_a_shell_arrives(ledger: Ledger, ran: Ran) -> None:
    job = ledger.enqueue("k")
    done = ran("", program=[*command("beat"), "--stage", "mix", "--progress", "4"])
    assert done.out == "Tasks: 1 succeeded.\n"
    found = ledger.get(job.id)
    assert (found.stage, found.progress) == ("mix", 4)


def test_a_cancel_is_noticed_within_15_seconds_under_any_ttl(ledger: Ledger) -> None:
    job, ada, now = ledger.enqueue("k"), Agent(ledger, "ada"), [0.0]
    task = ada.start(job.id, ttl="1h")
    policy = ledger.get(job.id).policy
    assert policy is not None
    lease = task_attempt.TaskLease(ada, task, policy, now[0], lambda: now[0], lambda: None)
    ledger.cancel(job.id)
    now[0] = lease.period
    lease.tick()
    assert (lease.period, lease.cancel_requested) == (task_attempt.BEAT_SECONDS_MAX, True)


@pytest.fixture
def unread(folder: Path, ledger: Ledger) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start the loop with a pipe as standard error."""
    running: list[subprocess.Popen[bytes]] = []

    def starter(script: str) -> subprocess.Popen[bytes]:
        words = command("task", "run", "--agent", "ada", "--ttl", "3s", "--grace", "1s", "--", "sh", "-c", script)
        running.append(subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return running[-1]

    yield starter
    for one in running:
        one.kill()
        one.communicate()


def test_an_unread_standard_error_delays_neither_cancel_nor_signal(
    ledger: Ledger, unread: Callable[[str], subprocess.Popen[bytes]], folder: Path
) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    running = unread("touch begun $HOLDFAST_TASK; while :; do echo 'an unread line' >&2; done")
    begun(folder)
    ledger.cancel(jobs[0].id)
    wait_until(lambda: ledger.get(jobs[0].id).status == "cancelled", what="the first task is cancelled")
    wait_until((folder / str(jobs[1].id)).exists, what="the second command runs")
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert ledger.get(jobs[1].id).status == "queued"
    assert problems(ledger) == []


def test_a_slow_reader_of_standard_error_gets_whole_lines(
    ledger: Ledger, unread: Callable[[str], subprocess.Popen[bytes]], folder: Path
) -> None:
    ledger.enqueue("k")
    running = unread("touch begun; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; done >&2")
    begun(folder)
    wait_until(lambda: types(ledger, 1).count("heartbeat") >= 2, what="the command waits for the reader")
    assert ledger.get(1).status == "running"
    _, said = running.communicate(timeout=60)
    lines = [line for line in said.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, 30_001)]
    assert ledger.get(1).status == "succeeded"


def test_a_standard_error_whose_reader_is_gone_ends_no_task(
    ledger: Ledger, unread: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    running = unread("echo an unread line >&2; echo 1")
    assert running.stderr is not None
    running.stderr.close()
    assert running.wait(60) == 0
    assert [ledger.get(job.id).result for job in jobs] == [1, 1]


def test_a_second_signal_kills_the_command(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    running = start("trap 'touch signalled' TERM; touch begun; while :; do sleep 0.05; done", "--grace", "1h")
    begun(folder)
    running.signal(signal.SIGTERM)
    wait_until((folder / "signalled").exists, what="the first signal is passed on")
    time.sleep(2 * REPEAT_SECONDS)  # an earlier signal would be taken for a repetition of the first
    running.signal(signal.SIGTERM)
    assert running.rest().out == "Tasks: 1 released.\n"
    assert ledger.get(job.id).status == "queued"


def test_a_process_that_lost_its_duty_ends_its_command(ledger: Ledger, start: Start, folder: Path) -> None:
    ledger.enqueue("k")
    running = start("touch begun; sleep 600")
    begun(folder)
    change_turn(ledger, folder, "holder = 'another'")
    done = running.rest()
    assert done.code == 1
    assert "is no longer ada's" in done.err
    assert "another process runs tasks as ada" in done.err


def test_the_command_of_a_frozen_process_is_fenced_off_by_the_next_one(ledger: Ledger, start: Start, folder: Path) -> None:
    job = ledger.enqueue("k")
    script = "cat > brief; touch begun$HOLDFAST_ATTEMPT; while [ ! -e go ]; do sleep 0.05; done; echo $HOLDFAST_ATTEMPT"
    frozen = start(script)
    wait_until((folder / "begun1").exists, what="the first command runs")
    frozen.signal(signal.SIGSTOP)
    change_turn(ledger, folder, "expires_at = 0")
    running = start(script)
    wait_until((folder / "begun2").exists, what="the second command runs")
    frozen.signal(signal.SIGCONT)
    done = frozen.rest()
    assert (done.code, "is no longer ada's" in done.err) == (1, True)
    (folder / "go").touch()
    assert running.rest().out == "Tasks: 1 succeeded.\n"
    found = ledger.get(job.id)
    assert (found.result, found.attempt, found.releases) == (2, 2, 1)
    assert problems(ledger) == []


def test_a_new_loop_continues_the_task_of_a_killed_loop(ledger: Ledger, start: Start, ran: Ran, folder: Path) -> None:
    jobs = [ledger.enqueue("k") for _ in range(2)]
    running = start("""echo '{"checkpoint": 7}' >&3; touch begun; sleep 600""")
    begun(folder)
    wait_until(lambda: ledger.get(jobs[0].id).checkpoint == 7, what="the checkpoint is kept")
    running.signal(signal.SIGKILL)
    running.rest()
    change_turn(ledger, folder, "expires_at = 0")
    assert ran("cat", "--once").out == "Tasks: 1 succeeded.\n"
    found = ledger.get(jobs[0].id)
    assert (found.attempt, found.result["task"]["checkpoint"]) == (2, 7)
    assert ledger.get(jobs[1].id).status == "queued"


def test_a_signal_ends_the_wait_for_another_process(ledger: Ledger, start: Start) -> None:
    duty = task_loop.SessionLock(ledger, Agent(ledger, "ada"), "", lambda: None).duty_name
    ledger.take_duty(duty, "another process", ttl="1h")
    running = start("true")
    running.says("Waiting for another process")
    running.signal(signal.SIGTERM)
    done = running.rest()
    assert (done.code, done.out) == (0, "There was nothing to do.\n")


class TestAnOutage:
    """The ledger is out of reach while the command runs and ends."""

    @pytest.fixture
    def there(self, restartable_server: PostgresServer) -> Iterator[Ledger]:
        with holdfast.open(restartable_server.url) as there:
            yield there

    def begin(self, there: Ledger, server: PostgresServer, folder: Path, ttl: str) -> Running:
        there.enqueue("k")
        script = 'touch begun; while [ ! -e go ]; do sleep 0.05; done; echo "{\\"stage\\": \\"last\\"}" >&3; echo 7'
        words = command("task", "run", "--agent", "ada", "--db", server.url, "--ttl", ttl, "--once", "--", "sh", "-c", script)
        running = Running(words, folder, environment())
        begun(folder)
        server.stop()
        (folder / "go").touch()
        return running

    def test_an_end_during_an_outage_is_recorded_afterwards(
        self, there: Ledger, restartable_server: PostgresServer, folder: Path
    ) -> None:
        running = self.begin(there, restartable_server, folder, "10m")
        running.says("waiting for the ledger")
        restartable_server.start()
        assert running.rest().out == "Tasks: 1 succeeded.\n"
        [job] = there.list()
        assert (job.status, job.result, job.stage, job.attempt) == ("succeeded", 7, "last", 1)
        assert problems(there) == []

    def test_the_task_is_given_up_when_the_claim_expires_during_an_outage(
        self, there: Ledger, restartable_server: PostgresServer, folder: Path
    ) -> None:
        running = self.begin(there, restartable_server, folder, "3s")
        assert running.rest().out == "Tasks: 1 lost.\n"
