"""`holdfast top`: a ledger on a real terminal, which is restored however the program ends."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import Job, Ledger
from holdfast.testing import ManualClock
from tests.cli.conftest import Run, command, environment
from tests.support.proxy import Proxy
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

Watch = Callable[..., Terminal]


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        yield ledger


@pytest.fixture
def watch(folder: Path) -> Iterator[Watch]:
    """Start `top` on its own terminal."""
    running: list[Terminal] = []

    def watcher(*arguments: str, program: list[str] | None = None, **size: int) -> Terminal:
        running.append(Terminal(program or command("top", "--every", "100ms", *arguments), folder, environment(), **size))
        return running[-1]

    yield watcher
    for one in running:
        one.close()


def held(ledger: Ledger, kind: str = "index", **given: Any) -> Job:
    ledger.enqueue(kind, **given)
    [job] = ledger.claim("ada", kinds=[kind], queues=[given.get("queue", "default")], start=True)
    assert job.fence is not None
    return job


def dead(ledger: Ledger, **given: Any) -> int:
    id_ = ledger.enqueue("broken", **given).id
    ledger.dead_letter(id_, reason_code="timeout", failure_stage="exec", error={"message": "red \x1b[31m"})
    return id_


def test_top_shows_queues_jobs_workers_and_sinks(ledger: Ledger, watch: Watch) -> None:
    job = held(ledger, queue="crawl")
    assert job.fence is not None
    ledger.heartbeat(job.fence, stage="FETCH", progress=50)
    ledger.sign_in("ada", body={"queues": ["crawl"], "holding": 1, "host": "h1"})
    stuck = held(ledger, "stuck", queue="slow")
    assert stuck.fence is not None
    ledger.stall(stuck.fence)
    dead(ledger)
    top = watch()
    for text in ("crawl", "Workers (1)", "ada", "FETCH", "█████░░░░░ 50", "Stalled (1)", "stuck", "Dead letters (1)", "timeout"):
        top.until(text)
    assert "red \\x1b[31m" in top.text
    ledger.enqueue("index", queue="later")
    top.until("later")
    top.type("q")
    assert top.end() == 0
    assert top.is_restored()


def test_a_dead_letter_is_replayed_after_a_confirmation(ledger: Ledger, watch: Watch) -> None:
    first, second = dead(ledger), dead(ledger)
    top = watch()
    top.until("Dead letters (2)")
    top.type("\t" * 5)
    top.until("▸ Dead letters")
    top.type("j")
    top.until(f">   {second}")
    top.type("r")
    top.until(f"Replay job {second}? y/n")
    top.type("n")
    top.until("Nothing was done.")
    assert ledger.list(replay_of=second) == []
    top.type("ry")
    top.until(f"Job {second} is replayed as")
    assert len(ledger.list(replay_of=second)) == 1
    assert ledger.list(replay_of=first) == []


def test_failed_jobs_have_a_column_and_a_pane(ledger: Ledger, watch: Watch) -> None:
    first, second = held(ledger), held(ledger)
    for job in (first, second):
        assert job.fence is not None
        ledger.fail(job.fence, {"message": f"no page {job.id}"}, retryable=False)
    top = watch()
    top.until("Failed (2)")
    top.until(f"no page {second.id}")
    top.until("failed")
    ledger.discard(second.id)
    top.until("Failed (1)")


def test_a_running_job_is_opened_and_cancelled(ledger: Ledger, watch: Watch) -> None:
    job = held(ledger)
    top = watch()
    top.until("Running (1)")
    top.type("\t\t\r")
    top.until(f"Job {job.id}: index in default, running")
    top.until(ledger.explain(job.id).text[:10])
    top.until("History, without beats")
    top.type("\x1b")
    top.until("▸ Running")
    top.type("c")
    top.until(f"Cancel job {job.id}? y/n")
    top.type("y")
    top.until("is asked to stop")
    assert ledger.get(job.id).cancel_requested_at is not None


def test_a_queue_is_paused_and_unpaused(ledger: Ledger, watch: Watch) -> None:
    ledger.enqueue("index", queue="crawl")
    top = watch()
    top.until("> crawl")
    top.type("p")
    wait_until(lambda: "crawl" in ledger.paused())
    top.until(lambda text: "crawl  paused" in text)
    top.type("p")
    wait_until(lambda: "crawl" not in ledger.paused())


def test_a_filter_keeps_matching_rows(ledger: Ledger, watch: Watch) -> None:
    for queue in ("apples", "pears"):
        ledger.enqueue("index", queue=queue)
    top = watch()
    top.until("apples")
    top.type("/PEAR")
    top.until("/PEAR")
    top.until(lambda text: "apples" not in text)
    top.type("\r")
    top.until("esc shows all")
    top.type("\x1b")
    top.until("apples")
    top.type("?")
    top.until("shift-tab")


def test_top_adapts_to_the_size_of_the_terminal(ledger: Ledger, watch: Watch) -> None:
    ledger.enqueue("index", queue="crawl")
    top = watch(lines=40, columns=120)
    top.until("q quit")
    top.resize(8, 40)
    top.until(lambda text: "▸ Queues" in text and "Workers" not in text and "crawl" in text)
    top.resize(30, 100)
    top.until(lambda text: "Dead letters (0)" in text and "q quit" in text)
    assert "q quit" in top.screen.display[29]


UNTRUE = [["LC_ALL=xx_XX.ISO-8859-1"], ["LC_ALL=C"], ["LC_ALL=C", "PYTHONUTF8=0"], ["LINES=1000000", "COLUMNS=1000000"]]


@pytest.mark.parametrize("variables", UNTRUE, ids=" ".join)
def test_wrong_terminal_variables_are_ignored(ledger: Ledger, watch: Watch, variables: list[str]) -> None:
    job = held(ledger)
    assert job.fence is not None
    ledger.heartbeat(job.fence, progress=50)
    top = watch(program=["env", *variables, *command("top")])
    top.until(lambda text: "█████░░░░░ 50" in text and "q quit" in text)  # a frame arrives in pieces
    assert "q quit" in top.screen.display[39]
    top.type("q")
    assert top.end() == 0


@pytest.mark.parametrize(("lines", "columns"), [(5, 20), (100, 300)])
def test_top_is_drawn_on_terminals_of_any_size(ledger: Ledger, watch: Watch, lines: int, columns: int) -> None:
    for number in range(30):
        ledger.enqueue("日本語", queue=f"待ち行列-{number:02}" * 4)
    top = watch(lines=lines, columns=columns)
    top.until("Queues (30)")
    top.type("j?")
    top.until("up, down")
    top.type("qq")
    assert top.end() == 0
    assert top.is_restored()


def test_wide_characters_keep_the_columns_aligned(ledger: Ledger, watch: Watch) -> None:
    for queue in ("plain", "日本語のキュー", "cafe\u0301", "🚀"):
        ledger.enqueue("index", queue=queue)
    top = watch()

    def states() -> list[int]:
        """The columns in which the states of the queues begin."""
        return [
            column
            for row, line in top.screen.buffer.items()
            for column in range(116 if row < top.screen.lines - 1 else 0)  # the line that explains the keys is not a state
            if "".join(line[column + n].data for n in range(4)) == "open"
        ]

    top.until(lambda _: len(states()) == 4)
    assert len(set(states())) == 1


def test_a_closed_terminal_ends_top(ledger: Ledger, watch: Watch) -> None:
    top = watch()
    top.until("Dead letters (0)")
    assert top.hang_up() == 0


def test_an_outage_of_the_database_is_shown_and_waited_for(postgres_url: str, watch: Watch) -> None:
    port = urlsplit(postgres_url).port
    assert port is not None
    with holdfast.open(postgres_url) as ledger, Proxy(port) as proxy:
        ledger.enqueue("index", queue="crawl")
        top = watch("--db", proxy.url(postgres_url))
        top.until("crawl")
        proxy.go_away()
        top.until("unavailable:")
        top.until("STALE since")
        assert "crawl" in top.text
        ledger.enqueue("index", queue="later")
        proxy.come_back()
        top.until("later")
        top.until(lambda text: "unavailable:" not in text)
        top.type("q")
        assert top.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_restores_the_terminal(ledger: Ledger, watch: Watch, number: signal.Signals) -> None:
    top = watch()
    top.until("Dead letters (0)")
    top.signal(number)
    assert top.end() == 0
    assert top.is_restored()


def test_an_internal_error_restores_the_terminal(ledger: Ledger, watch: Watch) -> None:
    program = (
        "from holdfast.cli import main\nfrom holdfast.cli.top_view import ViewState\n"
        "def press(*_): raise RuntimeError('a fault')\n"
        "ViewState.press = press\nmain(['top'])"
    )
    top = watch(program=[sys.executable, "-c", program])
    top.until("Dead letters (0)")
    top.type("j")
    assert top.end() == 1
    assert top.is_restored()
    assert "a fault" in top.text


def test_a_terminal_that_cannot_be_drawn_on_is_refused(ledger: Ledger, watch: Watch) -> None:
    top = watch(program=["env", "TERM=dumb", *command("top")])
    assert top.end() == 2
    assert "Use --once" in top.text


def test_without_a_terminal_it_shows_the_ledger_once(store_url: str, run: Run) -> None:
    with holdfast.open(store_url, clock=ManualClock(datetime.now(UTC) - timedelta(hours=1))) as ledger:
        held(ledger)
        dead(ledger, queue="crawl")
    done = run("top", "--db", store_url)
    assert (done.code, done.err, "\x1b" in done.out) == (0, "", False)
    for text in ("Queues (2)", "Running (1)", "Dead letters (1)", "red \\x1b[31m"):
        assert text in done.out
    snapshot = run("top", "--db", store_url, "--json").answer["data"]
    assert [one["name"] for one in snapshot["queues"]] == ["crawl", "default"]


def test_silent_and_replaced_workers_are_marked(folder: Path, run: Run) -> None:
    url = f"sqlite:///{folder}/holdfast.db"
    with holdfast.open(url, clock=ManualClock(datetime.now(UTC) - timedelta(minutes=7))) as ledger:
        ledger.sign_in("ada", incarnation="one")
        ledger.sign_in("bob", incarnation="one")
    with holdfast.open(url) as ledger:
        ledger.sign_in("ada", incarnation="two")
    lines = [re.split("  +", line.strip()) for line in run("top", "--once", "--db", url).out.splitlines()]
    shown = [line[1] for line in lines if line[0] in ("ada", "bob")]
    assert shown[0] == "replaced by a newer one, silent for 7m"
    assert re.fullmatch(r"\ds ago", shown[1])
    assert shown[2] == "silent for 7m"


def test_a_queue_is_opened(ledger: Ledger, watch: Watch) -> None:
    first = ledger.enqueue("index", queue="crawl")
    ledger.enqueue("index", queue="crawl", depends_on=[first.id])
    [busy] = ledger.claim("ada", ["crawl"], start=True)
    assert busy.fence is not None
    ledger.fail(busy.fence, {"type": "TransientError", "message": "503"})
    ledger.pause("crawl", reason="reindexing", actor="ada")
    top = watch()
    top.until("crawl")
    top.type("\r")
    top.until("by ada: reindexing")
    top.until("retried: TransientError: 503")
    top.until("queued, waits for 1")
    top.until("esc back")
    top.type("q")
    top.until("Dead letters (0)")
    top.type("q")
    assert top.end() == 0
