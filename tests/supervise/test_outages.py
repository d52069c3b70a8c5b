"""While the ledger is out of reach, a healthy program keeps running, and no program is started uncounted."""

from pathlib import Path

import pytest

import holdfast
from tests.supervise.conftest import QUICK, Supervise, pipe
from tools.pgserver import PostgresServer

WAIT = ["sh", "-c", "echo ran; read line < gate; exit $line"]


@pytest.mark.parametrize(("exit_code", "awaited"), [(0, "over"), (3, "started")])
def test_changes_during_an_outage_are_recorded_afterwards(
    restartable_server: PostgresServer, supervise: Supervise, folder: Path, exit_code: int, awaited: str
) -> None:
    gate = pipe(folder)
    one = supervise("--db", restartable_server.url, "--name", "web", *QUICK, "--", *WAIT)
    assert one.line() == "ran"
    one.logged("started")
    restartable_server.stop()
    gate.write_text(f"{exit_code}\n")
    one.logged("waiting for the ledger")
    restartable_server.start()
    one.logged(awaited)
    if exit_code:
        assert one.line() == "ran"
        gate.write_text("0\n")
    assert one.rest().code == 0
    with holdfast.open(restartable_server.url) as ledger:
        [state] = ledger.runs()
        assert (state.terminal_reason, state.restarts) == ("clean_exit", int(exit_code != 0))


def test_a_signal_ends_the_wait_for_an_unreachable_ledger(
    restartable_server: PostgresServer, supervise: Supervise, folder: Path
) -> None:
    gate = pipe(folder)
    one = supervise("--db", restartable_server.url, "--name", "web", "--", *WAIT)
    assert one.line() == "ran"
    restartable_server.stop()
    gate.write_text("0\n")
    one.logged("waiting for the ledger")
    one.signal()
    assert one.rest().code == 3
