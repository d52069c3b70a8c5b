"""`holdfast demo`, from start to end: real processes, a real SIGKILL, a real ledger left behind."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import holdfast
from holdfast.demo import hour
from holdfast.demo.command import program_name
from holdfast.demo.verification import verify_job
from holdfast.demo.workers import DemoError
from tests.support.server import Client
from tests.support.waiting import wait_until

COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]


def run(*arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_demo_loses_a_worker_and_no_job(tmp_path: Path) -> None:
    done = run("demo", env={"TMPDIR": str(tmp_path)})

    assert (done.returncode, done.stderr) == (0, "")
    assert "SIGKILL" in done.stdout
    assert "fence_lost" in done.stdout
    assert "200 jobs, all succeeded" in done.stdout
    assert "\x1b" not in done.stdout
    [kept] = tmp_path.glob("holdfast-demo-*/demo.db")
    assert f"HOLDFAST_URL='sqlite:///{kept}'" in done.stdout
    with holdfast.open(f"sqlite:///{kept}") as ledger:
        [counts] = ledger.counts().values()
        assert counts == {"succeeded": 200}
        [lost] = [event.job_id for event in ledger.events(types=["stalled"])]
        assert [event.type.value for event in ledger.events(lost)] == re.findall(
            r"^ +\d+  (\w+) ", done.stdout.partition("The history of job")[2], re.MULTILINE
        )


def test_the_last_lines_are_commands_that_work(tmp_path: Path) -> None:
    done = run("demo", "--jobs", "5", "--workers", "2", env={"TMPDIR": str(tmp_path)})
    export, *commands = done.stdout.partition("What to try next, in this folder\n")[2].splitlines()

    shown = [line.partition("#")[0].split()[-2:] for line in commands]
    assert [words[0] if words[1].isdigit() else " ".join(words) for words in shown] == [
        "explain", "events", "worker list", "holdfast serve",
    ]  # fmt: skip
    for command in commands[:-1]:
        answer = subprocess.run(
            ["/bin/sh", "-c", f"{export}\n{command}"], capture_output=True, text=True, check=False, timeout=60
        )
        assert (answer.returncode, answer.stderr) == (0, ""), command
    serve = commands[-1].partition("#")[0]
    with subprocess.Popen(["/bin/sh", "-c", f"{export}\nexec {serve} --port 0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert next(line for line in process.stdout if "#code=" in line)
        process.terminate()
        assert process.wait(60) == 0


def test_the_commands_at_the_end_name_the_program_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / ".venv" / "bin" / "holdfast"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/holdfast", "demo"])
    assert program_name() == ".venv/bin/holdfast"
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin")
    assert program_name() == "holdfast"
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/holdfast/__main__.py", "demo"])
    assert program_name() == f"{sys.executable} -m holdfast"


def test_the_demo_prints_what_it_verified_as_json(tmp_path: Path) -> None:
    done = run("demo", "--jobs", "5", "--workers", "2", "--json", env={"TMPDIR": str(tmp_path)})

    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    answer = json.loads(line)
    assert (answer["schema_version"], answer["success"], answer["data"]["jobs"]) == ("v1", True, 5)
    assert sum(answer["data"]["recorded_by"].values()) == 5
    assert answer["data"]["recovery_s"] >= answer["data"]["silence_s"] >= 1


def test_a_served_demo_has_an_hour_of_history_and_workers_that_go_on(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--jobs", "5", "--workers", "2", "--serve"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            url = next(line for line in process.stdout if line.startswith("Serving ")).split()[1]
            link = next(line for line in process.stdout if "#code=" in line)
            assert url in link
            page = Client(int(url.rpartition(":")[2])).get("/")
            assert page.status == 200 and b"<title>" in page.body
            [kept] = tmp_path.glob("holdfast-demo-*/demo.db")
            with holdfast.open(f"sqlite:///{kept}") as ledger:
                _has_an_hour(ledger)
                last = ledger.list(order="newest", limit=1)[0].id
                wait_until(lambda: any(job.id > last for job in ledger.list(status="succeeded", order="newest", limit=20)))
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def _has_an_hour(ledger: holdfast.Ledger) -> None:
    """Check that the made-up history is complete and valid, and that it lasts an hour."""
    for kind in hour.KINDS:
        first, last = (ledger.list(kind=kind, status="succeeded", order=order, limit=200) for order in ("oldest", "newest"))
        assert len(first) == 200
        assert [ledger.check(job.id) for job in first[:10]] == [[]] * 10
        assert (last[0].created_at - first[0].created_at).total_seconds() > 3_400


def test_the_demo_runs_on_postgresql(postgres_url: str) -> None:
    done = run("demo", "--jobs", "20", "--workers", "2", "--db", f"{postgres_url}?schema=demo")

    assert (done.returncode, done.stderr) == (0, "")
    assert "20 jobs, all succeeded" in done.stdout


@pytest.mark.parametrize(("no_color", "colour"), [("", True), ("1", False)])
def test_colour_is_used_only_on_terminals_that_support_it(tmp_path: Path, no_color: str, colour: bool) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "demo", "--jobs", "1", "--workers", "2"],
        env={**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": no_color, "TERM": "xterm"},
        stdout=theirs,
        stdin=subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        said = read_all(ours)
        assert process.wait(60) == 0
    assert (b"\x1b[" in said) == colour


def read_all(descriptor: int) -> bytes:
    """Until the other end of the terminal is closed, which Linux reports as an error."""
    said = b""
    try:
        while chunk := os.read(descriptor, 65_536):
            said += chunk
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return said


def test_a_demo_that_cannot_open_its_ledger_says_why(tmp_path: Path) -> None:
    done = run("demo", "--db", f"sqlite:///{tmp_path}/missing/demo.db")

    assert done.returncode == 1
    assert done.stderr.startswith("Failed: validation_error: there is no folder")


def test_a_worker_that_fails_fails_the_demo(tmp_path: Path) -> None:
    """The workers import a broken holdfast."""
    broken = tmp_path / "holdfast"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise SystemExit(7)\n")
    program = f"import os; from holdfast.cli import main; os.environ['PYTHONPATH'] = {str(tmp_path)!r}; main()"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, "demo"], env=env, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 1
    assert "ended by itself with exit code 7" in done.stderr


def test_a_wrong_result_is_not_verified(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/demo.db") as ledger:
        ledger.enqueue("digest", {"text": "one"})
        [held] = ledger.claim("ant", start=True)
        ledger.complete(held.fence, {"sha256": "0" * 64, "by": "ant"})
        with pytest.raises(DemoError, match="job 1 is succeeded with the result"):
            verify_job(ledger, ledger.get(held.id), "one", lost=False)


def test_the_version_is_the_package_s() -> None:
    assert run("--version").stdout == f"holdfast, version {holdfast.__version__}\n"
