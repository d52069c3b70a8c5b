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
from holdfast.agent import Agent
from holdfast.testing import ManualClock
from tests.cli.conftest import Run, command, environment
from tests.support.proxy import Proxy
from tests.support.terminal import Terminal

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
    return job


def dead(ledger: Ledger, **given: Any) -> int:
    id_ = ledger.enqueue("broken", **given).id
    ledger.dead_letter(id_, reason_code="timeout", failure_stage="exec", error={"message": "red \x1b[31m"})
    return id_


def test_top_shows_jobs_queues_workers_agents_and_findings(ledger: Ledger, watch: Watch) -> None:
    held(ledger, queue="crawl")
    ledger.sign_in("ada", body={"queues": ["crawl"], "host": "h1 \x1b[31m"})
    task = ledger.enqueue("review")
    Agent(ledger, "bob").start(task.id)
    dead(ledger)
    ledger.pause("slow", reason="reindexing", actor="ada")
    top = watch()
    for text in (
        "2 running, 1 dead-lettered",
        "dead letters    1",
        "Queues, the largest 3",
        "crawl",
        "Workers: 1 fresh",
        "h1 \\x1b[31m",
        "by ada: reindexing",
        "Agents (1)",
    ):
        top.until(text)
    assert re.search(rf"bob +\S+ +{task.id} +1 +\ds ago", top.text)
    ledger.enqueue_many([{"kind": "index", "queue": "later"}] * 3)
    top.until("later")
    top.until("3 queued")
    top.signal(signal.SIGINT)
    assert top.end() == 0
    assert top.is_restored()


def test_top_does_not_clear_what_it_draws_again(ledger: Ledger, watch: Watch) -> None:
    top = watch()
    for number in range(3):
        ledger.enqueue("index", queue=f"q{number}")
        top.until(f"q{number}")
    assert b"\x1b[2J" not in top.written
    assert top.written.count(b"\x1b[?1049h") == 1


def test_top_adapts_to_the_size_of_the_terminal(ledger: Ledger, watch: Watch) -> None:
    ledger.enqueue("index", queue="crawl")
    top = watch(lines=40, columns=120)
    top.until("crawl")
    top.resize(6, 40)
    top.until(lambda text: "more lines" in text and "crawl" not in text)
    top.resize(30, 100)
    top.until("crawl")


UNTRUE = [["LC_ALL=xx_XX.ISO-8859-1"], ["LC_ALL=C"], ["LC_ALL=C", "PYTHONUTF8=0"], ["LINES=1000000", "COLUMNS=1000000"]]


@pytest.mark.parametrize("variables", UNTRUE, ids=" ".join)
def test_wrong_terminal_variables_are_ignored(ledger: Ledger, watch: Watch, variables: list[str]) -> None:
    ledger.enqueue("index", queue="日本語")
    top = watch(program=["env", *variables, *command("top")])
    top.until(lambda text: "open" in text and "日" in text)
    top.signal(signal.SIGTERM)
    assert top.end() == 0


@pytest.mark.parametrize(("lines", "columns"), [(5, 20), (100, 300)])
def test_top_is_drawn_on_terminals_of_any_size(ledger: Ledger, watch: Watch, lines: int, columns: int) -> None:
    for number in range(30):
        ledger.enqueue("日本語", queue=f"待ち行列-{number:02}" * 4)
    top = watch(lines=lines, columns=columns)
    top.until("more" if lines == 5 else "30 queued")
    top.signal(signal.SIGINT)
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
            for line in top.screen.buffer.values()
            for column in range(116)
            if "".join(line[column + n].data for n in range(4)) == "open"
        ]

    top.until(lambda _: len(states()) == 4)
    assert len(set(states())) == 1


def test_a_closed_terminal_ends_top(ledger: Ledger, watch: Watch) -> None:
    top = watch()
    top.until("Queues")
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
        top.signal(signal.SIGINT)
        assert top.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_restores_the_terminal(ledger: Ledger, watch: Watch, number: signal.Signals) -> None:
    top = watch()
    top.until("Queues")
    top.signal(number)
    assert top.end() == 0
    assert top.is_restored()


def test_an_internal_error_restores_the_terminal(ledger: Ledger, watch: Watch) -> None:
    program = (
        "from holdfast.cli import main, top\ndef fail(*_): raise RuntimeError('a fault')\ntop.show_overview = fail\nmain(['top'])"
    )
    top = watch(program=[sys.executable, "-c", program])
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
    for text in ("1 running, 1 dead-lettered", "Queues, the largest 2", "Findings"):
        assert text in done.out
    found = run("top", "--db", store_url, "--json").answer["data"]
    assert {one["name"]: one["counts"] for one in found["overview"]["queues"]} == {
        "crawl": {"dead_lettered": 1},
        "default": {"running": 1},
    }
    assert (found["workers"], found["agents"]) == ([], [])


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
