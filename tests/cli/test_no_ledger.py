"""Commands that only read create nothing, and report `no_ledger`."""

import ctypes
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import apsw
import pytest

import holdfast
from holdfast.errors import HoldfastError, NoLedger, Unavailable, ValidationError
from tests.cli.conftest import Run, Start, command, environment

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2

READING = [
    "job list", "job get 1", "job events 1", "queue list", "queue get q", "worker list", "dlq list", "dlq get 1",
    "events tail --once", "events tail", "events export", "explain 1", "gate 1", "key list", "key export", "sink list",
    "task list", "task get --id 1", "supervise --list", "top", "top --once", "verify --job 1", "doctor",
]  # fmt: skip


def urls(folder: Path) -> dict[str, str]:
    """Urls without a ledger: no file, no folder, an empty file, the database of another program."""
    (folder / "empty.db").touch()
    theirs = apsw.Connection(str(folder / "theirs.db"))
    theirs.execute("CREATE TABLE songs (name)")
    theirs.close()
    return {name: f"sqlite:///{name}" for name in ("none.db", "no/folder.db", "empty.db", "theirs.db")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("words", READING)
def test_reading_creates_no_ledger(run: Run, folder: Path, words: str) -> None:
    before = contents(folder)
    done = run(*words.split())
    assert (done.code, "Traceback" in done.err) == (3, False)
    assert f"there is no ledger at {folder}/holdfast.db" in done.err
    assert "run holdfast migrate, or enqueue a job: holdfast job enqueue" in done.err
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["none.db", "no/folder.db", "empty.db", "theirs.db"])
def test_files_that_are_not_a_ledger_are_not_changed(run: Run, folder: Path, name: str) -> None:
    url, before = urls(folder)[name], contents(folder)
    done = run("job", "list", "--db", url, "--json")
    assert (done.code, done.err) == (3, "")
    assert (done.answer["error_code"], done.answer["error_context"]) == ("no_ledger", {"path": f"{folder}/{name}"})
    assert "holdfast migrate" in done.answer["suggested_action"]
    assert contents(folder) == before


def test_reading_creates_no_schema_on_a_server(postgres_url: str, run: Run) -> None:
    joined = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{joined}schema=not_there"
    for _ in range(2):
        done = run("job", "list", "--db", url, "--json")
        assert (done.code, done.answer["error_code"]) == (3, "no_ledger")
    assert run("migrate", "--db", url).code == 0
    assert run("job", "list", "--db", url).code == 0


@pytest.mark.parametrize("words", ["job list", "job enqueue index"])
def test_the_advice_for_a_missing_database_is_not_to_try_again(postgres_url: str, run: Run, words: str) -> None:
    parts = urlsplit(postgres_url)
    done = run(*words.split(), "--db", urlunsplit(parts._replace(path="/not_there")), "--json")
    assert (done.code, done.answer["error_code"]) == (3, "no_ledger")
    assert done.answer["error"] == 'the database "not_there" does not exist on this server'
    assert "createdb" in done.answer["suggested_action"] and "again" not in done.answer["suggested_action"]


@pytest.mark.parametrize("words", ["job enqueue index --queue default", "migrate", "sweep", "dlq replay --all", "queue pause a"])
def test_writing_creates_a_ledger_and_reports_it_once(run: Run, folder: Path, words: str) -> None:
    (folder / "empty.db").touch()
    done = run(*words.split(), "--db", "sqlite:///elsewhere.db")
    assert (done.code, done.err.splitlines()[0]) == (0, "sqlite:///elsewhere.db did not exist: an empty ledger was created.")
    assert run("job", "list", "--db", "sqlite:///elsewhere.db").err == ""
    assert run(*words.split(), "--db", "sqlite:///empty.db", "--json").code == 0
    assert run("job", "list", "--db", "sqlite:///empty.db").code == 0


@pytest.mark.parametrize("words", ["job list", "job enqueue index --queue default", "doctor", "task list"])
@pytest.mark.parametrize("name", ["folder.db", "words.db"])
def test_paths_that_cannot_be_a_ledger_are_refused(run: Run, folder: Path, words: str, name: str) -> None:
    (folder / "folder.db").mkdir()
    (folder / "words.db").write_text("not a database, but long enough to be taken for one")
    before = contents(folder)
    done = run(*words.split(), "--db", f"sqlite:///{name}", "--json")
    assert (done.code, done.answer["error_code"]) == (3 if words == "doctor" else 1, "validation_error")
    assert f"{name} is not a SQLite database" in done.answer["error"]
    assert contents(folder) == before


@pytest.mark.parametrize("words", ["job list", "job enqueue index --queue default", "doctor", "sweep"])
def test_a_file_that_cannot_be_used_is_out_of_reach(run: Run, folder: Path, words: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db"):
        pass
    (folder / "holdfast.db-lock").unlink()
    (folder / "holdfast.db-lock").mkdir()
    for url in ("sqlite:///holdfast.db", f"sqlite:///{'a' * 300}.db"):
        done = run(*words.split(), "--db", url, "--json")
        assert (done.code, done.answer["error_code"]) == (3, "unavailable")
        assert "cannot open" in done.answer["error"]


def _bound_by_modes() -> None:
    """Drop the rights with which root may read and write every file."""
    if os.geteuid() == 0:
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_reading_requires_the_right_to_write(folder: Path, mode: int) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db"):
        pass
    for path in folder.glob("holdfast.db*"):
        path.chmod(mode)
    words = command("job", "list", "--json")
    done = subprocess.run(
        words, cwd=folder, env=environment(), preexec_fn=_bound_by_modes, capture_output=True, text=True, check=False
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["error_code"]) == (3, "unavailable")
    assert "because they take locks" in answer["suggested_action"]


def test_a_missing_right_is_not_retryable(tmp_path: Path) -> None:
    from holdfast.store.sqlite.files import open_error

    denied, busy = open_error(tmp_path, PermissionError("no")), open_error(tmp_path, apsw.IOError("disk"))
    assert (denied.retryable, "because they take locks" in denied.action) == (False, True)
    assert (busy.retryable, busy.action) == (True, Unavailable.action)


def test_doctor_reports_why_it_cannot_open_the_ledger(run: Run, folder: Path) -> None:
    done = run("doctor", "--json")
    [finding] = done.answer["error_context"]["findings"]
    assert (done.answer["error_code"], finding["code"], finding["severity"]) == ("no_ledger", "ledger", "warning")
    assert str(folder) in finding["words"] and "holdfast migrate" in finding["action"]
    said = run("doctor")
    assert (said.code, "warning  ledger" in said.out, "→ Check the url" in said.out) == (3, True, True)


def test_a_path_is_not_a_url(run: Run) -> None:
    done = run("job", "list", "--db", "jobs.db", "--json")
    assert (done.code, done.answer["suggested_action"]) == (2, "Name it as sqlite:///jobs.db")


def test_a_reader_sees_commits_in_the_log_of_an_open_writer(folder: Path, start: Start, run: Run) -> None:
    """The reader sees commits that are still in the writer's log."""
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
        assert "index" in run("job", "list").out


@pytest.mark.parametrize(("url", "error"), [("none.db", NoLedger), ("no/folder.db", NoLedger), ("", ValidationError)])
def test_open_without_create_creates_nothing(tmp_path: Path, url: str, error: type[HoldfastError]) -> None:
    with pytest.raises(error):
        holdfast.open(f"sqlite:///{tmp_path}/{url}", create=False)
    assert list(tmp_path.iterdir()) == []
