"""A process with an open ledger forks in mid-transaction: the child is refused, opens the ledger again, and harms no other."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.store.session import Session
from tests.support.histories import all_jobs, problems
from tests.support.processes import Program


def fork_often(url: str, forks: int) -> None:
    with Program("forking", url, forks) as program:
        said = program.answer()
        program.wait()
    assert said["errors"] == []
    for child in said["children"]:
        assert "error" not in child, child
        assert (child["used"], child["read"], child["status"]) == ("unavailable", "unavailable", 0)
    answered = [*said["made"], *said["pooled"], said["after"], *(id_ for child in said["children"] for id_ in child["made"])]
    with holdfast.open(url) as ledger:
        assert sorted(answered) == [job.id for job in all_jobs(ledger)]
        assert problems(ledger) == []


def test_forks_in_the_middle_of_transactions_lose_nothing(store_url: str) -> None:
    fork_often(store_url, 6)


@pytest.mark.torture
def test_many_forks_in_the_middle_of_transactions_lose_nothing(store_url: str) -> None:
    fork_often(store_url, 150)


def in_child(act: Callable[[], Any]) -> Any:
    """The result of `act` in a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            said = act()
        except holdfast.HoldfastError as error:
            said = [error.code, error.message, error.action]
        except BaseException as error:  # noqa: BLE001 - the test reports every error
            said = repr(error)
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = json.loads(pipe.read())
    assert os.waitpid(pid, 0)[1] == 0
    return said


def elsewhere(url: str) -> list[str]:
    """The kinds of all jobs, read by another process that then closes the ledger."""
    code = (
        "import holdfast, sys; ledger = holdfast.open(sys.argv[1]); print(*[job.kind for job in ledger.list()]); ledger.close()"
    )
    return subprocess.run([sys.executable, "-c", code, url], check=True, capture_output=True, text=True).stdout.split()


def test_the_log_stays_while_a_child_has_the_ledger_open_again(tmp_path: Path) -> None:
    """The end of the parent, or of any other process, must not delete the log while the child uses it."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    parent = holdfast.open(url)
    parent.enqueue("parent")
    go_reader, go = os.pipe()
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        child = holdfast.open(url)
        child.enqueue("child")
        os.write(say, b"x")
        os.read(go_reader, 1)
        child.enqueue("acknowledged")
        os.write(say, b"x")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.read(said, 1)
    parent.close()
    assert elsewhere(url) == ["parent", "child"]
    os.write(go, b"x")
    assert os.read(said, 1)
    os.waitpid(pid, 0)
    assert elsewhere(url) == ["parent", "child", "acknowledged"]
    for fd in (go_reader, go, said, say):
        os.close(fd)


def test_a_child_does_not_keep_the_locks_of_a_killed_parent(tmp_path: Path) -> None:
    """An flock lives as long as any copy of its descriptor."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    code = (
        "import holdfast, os, signal, sys, threading\n"
        "ledger = holdfast.open(sys.argv[1])\n"
        "def work(session):\n"
        "    if os.fork():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    print(os.getpid(), flush=True)\n"
        "    signal.pause()\n"
        "ledger._store.transact('work', work)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        assert parent.wait(60) == -signal.SIGKILL
        try:
            with Path(f"{tmp_path}/holdfast.db-lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(lock, fcntl.LOCK_UN)
            with holdfast.open(url) as ledger:
                assert ledger.enqueue("after").id == 1
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_a_child_forked_within_a_transaction_opens_no_ledger_on_that_file(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/holdfast.db", f"sqlite:///{tmp_path}/other.db"
    with holdfast.open(url) as ledger:
        said: list[Any] = []

        def work(session: Session) -> None:
            said.append(in_child(lambda: holdfast.open(url).counts()))
            said.append(in_child(lambda: holdfast.open(other).enqueue("other").id))

        ledger._store.transact("work", work)
        assert said[0][0] == "unavailable"
        assert "forked while a connection" in said[0][1]
        assert "spawn" in said[0][2]
        assert said[1] == 1
        assert ledger.enqueue("after").id == 1
        assert in_child(lambda: holdfast.open(url).enqueue("child").id) == 2


def test_a_child_cannot_open_a_file_to_which_the_parent_has_its_own_connection(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with holdfast.open(url) as ledger:
        ledger.enqueue("before")
        own = apsw.Connection(f"{tmp_path}/holdfast.db")
        own.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018 - opens the file
        assert in_child(lambda: holdfast.open(url).counts())[0] == "unavailable"
        own.close()
        assert in_child(lambda: holdfast.open(url).counts()) == {"default": {"queued": 1}}
