"""Servers that send their answers slowly, or without end. Every call ends in the time that it has."""

import contextlib

import pytest

import holdfast
from holdfast import Ledger, Unavailable
from tests.remote.scripted import JSON, Drip, Prepared, Scripted
from tests.remote.test_answers import ANY

OK = b"HTTP/1.1 200 OK\r\n"
TYPED = b"Content-Type: application/json\r\n"
NOW: Prepared = (200, JSON, {"now": "2026-11-17T12:00:00Z"}, {})
DRIPS = {
    "status": Drip(b"", b"H"),
    "headers": Drip(OK, b"X"),
    "body": Drip(OK + TYPED + b"Content-Length: 1000000\r\n\r\n", b" "),
    "chunks": Drip(OK + TYPED + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "whole connection": Drip(OK + TYPED + b"\r\n", b" "),
}


@pytest.mark.parametrize("name", DRIPS)
def test_an_answer_that_drips_is_given_up(name: str) -> None:
    with Scripted(DRIPS[name]) as script, holdfast.open(script.url, token=ANY) as ledger:
        ledger.patience = 0.3
        with pytest.raises(Unavailable, match="in time"):
            ledger.now()


def test_a_heartbeat_that_drips_does_not_hold_the_next_one() -> None:
    beat = {"job_id": 7, "rev": 4, "status": "running", "cancel_requested": False, "lease_expires_at": None}
    answer: Prepared = (200, JSON, {"answers": [{"beat": beat | {"at": "2026-11-17T12:00:00Z"}}]}, {})
    fence = holdfast.Fence(7, 1, "t" * 32, "w-1", "boot")
    with Scripted(DRIPS["body"], answer) as script, holdfast.open(script.url, token=ANY) as ledger:
        ledger.patience = 0.3
        with pytest.raises(Unavailable):
            ledger.heartbeat_many([fence])
        ledger.patience = 30
        assert [getattr(found, "rev", found) for found in ledger.heartbeat_many([fence])] == [4]


def test_a_line_of_a_file_that_drips_is_given_up() -> None:
    drip = Drip(OK + b"Content-Type: application/x-ndjson\r\n\r\n" + b'{"event": 1}\n', b" ")
    lines: list[bytes] = []
    with Scripted(drip) as script, holdfast.open(script.url, token=ANY) as ledger:
        ledger.patience = 0.3
        with pytest.raises(Unavailable, match="in time"):
            ledger.export(lines.append)
    assert lines == [b'{"event": 1}\n']


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.remote.connections.ANSWER_BYTES_MAX", 1_000_000)
    endless = Drip(OK + TYPED + b"\r\n", b" " * 200_000)
    with Scripted(endless) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(Unavailable) as caught:
        ledger.cancel(7)
    assert (caught.value.outcome, caught.value.retryable) == ("unknown", False)


def test_an_answer_that_was_cut_is_asked_for_again() -> None:
    cut: Prepared = (200, JSON, {"now": 1}, {"Content-Length": "100", "Connection": "close"})
    with Scripted(cut, NOW) as script, holdfast.open(script.url, token=ANY) as ledger:
        assert ledger.now().year == 2026
    assert len(script.asked) == 4


def test_a_page_instead_of_a_file_is_refused() -> None:
    page: Prepared = (200, "text/html", "<h1>Welcome</h1>", {})
    written: list[bytes] = []
    with Scripted(page) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(Unavailable):
        ledger.export(written.append)
    assert written == []


def test_a_file_waits_for_a_free_connection_and_is_then_refused(remote: Ledger) -> None:
    """Each export is within another one, so that all of them are under way."""
    remote.patience = 0.3
    refused: list[Unavailable] = []

    def export_within(depth: int) -> None:
        lines: list[bytes] = []

        def write(line: bytes) -> None:
            lines.append(line)
            if len(lines) == 1 and not refused:
                export_within(depth + 1)

        try:
            remote.export(write)
        except Unavailable as error:
            assert not refused
            refused.append(error)

    with contextlib.suppress(Unavailable):
        export_within(1)
    assert [error.message for error in refused] == ["all connections of this process to the server are in use"]


def test_a_server_that_does_not_answer_is_logged_once_until_it_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.remote.transport.NOTICE_SECONDS", 0.05)
    silent, found = Drip(b"", b""), list[str]()
    with Scripted(silent, silent, NOW, silent) as script, holdfast.open(script.url, token=ANY) as ledger:
        for patience, lines in ((0.2, 1), (0.2, 1), (30.0, 1), (0.2, 2)):
            ledger.patience = patience
            with contextlib.suppress(Unavailable):
                ledger.now()
            found = [record.getMessage() for record in caplog.records if record.name == "holdfast.remote"]
            assert len(found) == lines
    assert found[0].startswith("no answer from 127.0.0.1:")
