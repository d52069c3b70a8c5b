"""The view of `holdfast top`, without a terminal: rates, panes, keys, and screens of every size."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.cli.top_screen import render_screen
from holdfast.cli.top_view import PANES, LedgerSnapshot, SnapshotReader, ViewAction, ViewState, progress_bar, shown_panes
from holdfast.testing import ManualClock

QUEUES, WORKERS, RUNNING, STALLED, FAILED, LETTERS, LIMITS = range(len(PANES))


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/holdfast.db", clock=clock) as ledger:
        yield ledger


@pytest.fixture
def snapshot(ledger: Ledger) -> LedgerSnapshot:
    ledger.enqueue_many([{"kind": "index", "queue": queue} for queue in ("a", "b", "c")])
    ledger.claim("ada", queues=["a", "b"], limit=2, start=True)
    ledger.sign_in("ada", body={"queues": "not a list", "host": {"x": 1}})
    return SnapshotReader(ledger).read()


def test_limits_have_a_pane_if_there_are_any(ledger: Ledger) -> None:
    def pane_names() -> list[str]:
        return [pane.name for pane in shown_panes(SnapshotReader(ledger).read())]

    assert "Limits" not in pane_names()
    ledger.set_limit("api", concurrent=2, rate="600/1m")
    ledger.set_limit("tenant", concurrent=2, by="args.n")
    for number in range(4):
        ledger.enqueue("k", {"n": number}, limits={"api": 1, "tenant": 2})
    assert len(ledger.claim("ada", limit=9)) == 2
    assert pane_names()[LIMITS] == "Limits"
    rows = PANES[LIMITS].rows(SnapshotReader(ledger).read())
    assert [(row.cells, row.tone) for row in rows] == [
        (("api", "2", "2", "600/1m", "–", "1", "2", "0s"), "warn"),
        (("tenant", "4", "2", "–", "args.n", "2", "0", "–"), ""),
    ]


def test_the_focus_leaves_the_pane_of_limits_with_the_last_limit(ledger: Ledger) -> None:
    state = ViewState()
    ledger.set_limit("api", concurrent=2)
    snapshot = SnapshotReader(ledger).read()
    state.press("backtab", snapshot)
    assert state.pane == LIMITS
    ledger.remove_limit("api")
    render_screen(state, SnapshotReader(ledger).read(), "", "", 40, 100)
    assert state.pane == LETTERS


def test_rates_are_the_difference_of_two_snapshots(ledger: Ledger, clock: ManualClock) -> None:
    looking = SnapshotReader(ledger)
    ledger.enqueue("index")
    assert [(one.enqueued_per_s, one.finished_per_s) for one in looking.read().queues] == [(None, None)]
    clock.advance(2)
    made = ledger.enqueue_many([{"kind": "index"}] * 4)
    ledger.cancel(made[0].id)
    assert [(one.enqueued_per_s, one.finished_per_s) for one in looking.read().queues] == [(2.0, 0.5)]


@pytest.mark.parametrize(
    ("progress", "drawn"),
    [(None, "–"), (0, "░░░░░░░░░░ 0"), (50, "█████░░░░░ 50"), (100, "██████████ 100"), (101, "101"), (-3, "-3")],
)
def test_progress_within_a_hundred_is_a_bar(progress: int | None, drawn: str) -> None:
    assert progress_bar(progress) == drawn


@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 13, 24, 60])
@pytest.mark.parametrize("width", [1, 7, 80, 300])
def test_a_screen_is_as_large_as_its_terminal(snapshot: LedgerSnapshot, height: int, width: int) -> None:
    stand = ViewState()
    for keys in ([], ["tab", "tab"], ["?"], ["escape", "/", "x"]):
        for key in keys:
            stand.press(key, snapshot)
        for seen in (snapshot, None):
            lines = render_screen(stand, seen, "a ledger", "", height, width)
            assert len(lines) == height
            assert all(len(line.text) <= width and line.text.isprintable() for line in lines)


def test_the_selection_stays_on_its_row_when_rows_are_added(ledger: Ledger, snapshot: LedgerSnapshot) -> None:
    stand = ViewState()
    stand.press("j", snapshot)
    assert stand.marked(snapshot) is not None and stand.marked(snapshot).key == "b"  # type: ignore[union-attr]
    ledger.enqueue("index", queue="aa")
    later = SnapshotReader(ledger).read()
    assert stand.marked(later).key == "b"  # type: ignore[union-attr]


def test_the_selection_stops_at_the_first_and_last_row(snapshot: LedgerSnapshot) -> None:
    stand = ViewState()
    for key, where in (("k", "a"), ("G", "c"), ("j", "c"), ("g", "a"), ("pgdn", "c"), ("pgup", "a")):
        stand.press(key, snapshot)
        row = stand.marked(snapshot)
        assert row is not None and row.key == where


def test_only_yes_confirms_a_question(snapshot: LedgerSnapshot) -> None:
    stand = ViewState()
    stand.pane = RUNNING
    row = stand.marked(snapshot)
    assert row is not None
    for answer in ("n", "enter", "escape", "q", "c"):
        assert stand.press("c", snapshot) is None
        assert stand.press(answer, snapshot) is None
    stand.press("c", snapshot)
    assert stand.press("y", snapshot) == ViewAction("cancel", row.job_id or 0)


def test_keys_without_a_selected_row_do_nothing(snapshot: LedgerSnapshot) -> None:
    stand = ViewState()
    for pane in (WORKERS, STALLED, LETTERS):
        stand.pane = pane
        for key in ("c", "r", "p", "x"):
            assert stand.press(key, snapshot) is None
    assert stand.to_confirm is None
    assert stand.press("q", snapshot) == ViewAction("quit")
