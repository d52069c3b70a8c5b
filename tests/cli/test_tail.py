"""`holdfast events tail`: events as they are committed, until it is stopped."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import Ledger
from tests.cli.conftest import Run, Start, command, environment
from tests.support.proxy import Proxy


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        yield ledger


def event(line: str) -> tuple[int, str]:
    whole = json.loads(line)
    assert (whole["schema_version"], whole["success"]) == ("v1", True)
    return whole["data"]["event"]["job_id"], whole["data"]["event"]["type"]


def test_tail_prints_events_as_they_are_committed(store_url: str, start: Start) -> None:
    with holdfast.open(store_url) as ledger:
        first = ledger.enqueue("index")
        tail = start("events", "tail", "--after", 0, "--json", "--db", store_url)
        assert event(tail.line()) == (first.id, "enqueued")
        second = ledger.enqueue("index")
        assert event(tail.line()) == (second.id, "enqueued")
        ledger.cancel(first.id)
        assert event(tail.line()) == (first.id, "cancelled")
        tail.signal(signal.SIGINT)
        assert tail.rest() == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_ends_cleanly_on_a_signal(ledger: Ledger, start: Start, number: signal.Signals) -> None:
    ledger.enqueue("index")
    tail = start("events", "tail", "--after", 0)
    assert "enqueued" in tail.line()
    tail.signal(number)
    assert tail.rest() == (0, "", "")


def test_tail_ends_when_its_reader_is_closed(ledger: Ledger, folder: Path) -> None:
    """Also if there is no further event whose write would fail."""
    ledger.enqueue("index")
    tail = subprocess.Popen(
        command("events", "tail", "--after", 0), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert tail.stdout is not None and tail.stderr is not None
    assert tail.stdout.readline()
    tail.stdout.close()
    assert tail.wait(60) == 0
    assert tail.stderr.read() == b""
    tail.stderr.close()


def test_tail_shows_only_the_requested_types(ledger: Ledger, run: Run) -> None:
    one, other = ledger.enqueue("index"), ledger.enqueue("index")
    ledger.cancel(one.id)
    ledger.cancel(other.id)
    of_one = run("events", "tail", "--once", "--job", one.id, "--json").out.splitlines()
    assert [event(line) for line in of_one] == [(one.id, "enqueued"), (one.id, "cancelled")]
    ends = run("events", "tail", "--once", "--type", "cancelled", "--json").out.splitlines()
    assert [event(line) for line in ends] == [(one.id, "cancelled"), (other.id, "cancelled")]
    last = json.loads(ends[0])["data"]["event"]["pos"]
    after = run("events", "tail", "--once", "--after", last, "--json").out.splitlines()
    assert [event(line) for line in after] == [(other.id, "cancelled")]


def test_heartbeats_are_left_out_on_request(ledger: Ledger, run: Run) -> None:
    ledger.enqueue("index")
    [held] = ledger.claim("w", start=True)
    ledger.heartbeat(held.fence)
    ledger.complete(held.fence)
    kinds = [event(line)[1] for line in run("events", "tail", "--once", "--no-beats", "--json").out.splitlines()]
    assert kinds == ["enqueued", "claimed", "started", "succeeded"]
    assert run("events", "tail", "--once", "--no-beats", "--type", "heartbeat").code == 2


def test_a_retry_is_selected_by_the_name_that_is_shown(ledger: Ledger, run: Run, start: Start) -> None:
    retried, silent = ledger.enqueue("index"), ledger.enqueue("index")
    [first, second] = [job.fence for job in ledger.claim("w", start=True, limit=2)]
    ledger.fail(first, "busy")
    ledger.release(second)

    def shown(*types: str) -> list[tuple[int, str]]:
        given = [word for name in types for word in ("--type", name)]
        return [event(line) for line in run("events", "tail", "--once", "--json", *given).out.splitlines()]

    assert shown("retried") == [(retried.id, "stalled")]
    assert shown("stalled") == [(silent.id, "stalled")]
    assert shown("JOB_EXECUTION_STALLED") == shown("stalled", "retried") == [(retried.id, "stalled"), (silent.id, "stalled")]
    assert [kind for _, kind in shown("retried", "enqueued")] == ["enqueued", "enqueued", "stalled"]
    assert event(start("events", "tail", "--after", 0, "--type", "stalled", "--json").line()) == (silent.id, "stalled")
    refused = run("events", "tail", "--once", "--type", "nosuch")
    assert (refused.code, "nosuch" in refused.err) == (2, True)


def test_a_disconnected_tail_says_how_to_continue(empty_schema: str, start: Start) -> None:
    port = urlsplit(empty_schema).port
    assert port is not None
    with holdfast.open(empty_schema) as ledger, Proxy(port) as proxy:
        ledger.enqueue("index")
        tail = start("events", "tail", "--after", 0, "--db", proxy.url(empty_schema))
        pos = int(tail.line().split()[0])
        proxy.go_away()
        done = tail.rest()
    assert done.code == 3
    assert f"Continue where it stopped, with --after {pos}." in done.err


def test_a_follower_gets_only_the_requested_events(ledger: Ledger, start: Start) -> None:
    one, other = ledger.enqueue("index"), ledger.enqueue("index")
    tail = start("events", "tail", "--after", 0, "--job", other.id, "--type", "cancelled", "--json")
    ledger.cancel(one.id)
    ledger.cancel(other.id)
    assert event(tail.line()) == (other.id, "cancelled")
