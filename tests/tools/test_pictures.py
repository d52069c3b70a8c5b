"""The pictures in docs/img show the dashboard as it is."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import holdfast
from holdfast import Event, Ledger
from holdfast.testing import ManualClock
from tools.kill_drawing import LOOP_SECONDS, draw_kill
from tools.pictures import FOLDER, tabs_in_picture, tabs_of_dashboard, with_tabs

PICTURES = sorted(FOLDER.glob("*.png"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_shows_every_tab_of_the_dashboard(path: Path) -> None:
    """After a change of the navigation, `make pictures` makes the pictures again."""
    assert tabs_in_picture(path.read_bytes()) == tabs_of_dashboard()


def test_there_are_pictures_and_tabs() -> None:
    assert len(PICTURES) == 4
    assert tabs_of_dashboard()[:2] == ["/", "/jobs"]


def test_a_missing_tab_is_noticed() -> None:
    picture = PICTURES[0].read_bytes()
    start, _, _ = picture.partition(b"\0\0\0\0IEND")
    without = start[: start.rindex(b"tEXt") - 4] + picture[-12:]
    assert tabs_in_picture(without) == []
    assert tabs_in_picture(with_tabs(without, ["/", "/new"])) == ["/", "/new"]


def test_the_drawing_tells_what_the_events_say(sqlite_url: str) -> None:
    clock = ManualClock()
    with holdfast.open(sqlite_url, clock=clock) as ledger:
        drawing = draw_kill(_killed_job(ledger, clock), "fence_lost")

    root = ET.fromstring(drawing)  # noqa: S314 - our own drawing
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["worker ant", "the ledger: job 1", "worker bee"]
    assert [text for text in texts if text.endswith(" s")] == ["0.00 s", "2.00 s", "33.00 s", "33.00 s", "35.00 s", "36.00 s"]
    assert ["SIGKILL" in texts, "stalled: NO_HEARTBEAT" in texts, "refused: fence_lost" in texts] == [True] * 3


def _killed_job(ledger: Ledger, clock: ManualClock) -> list[Event]:
    ledger.enqueue("digest", policy={"backoff_base": "1s", "attempts_max": 3})
    clock.advance(2)
    ledger.claim("ant", start=True)
    clock.advance(31)
    ledger.sweep()
    clock.advance(2)
    ledger.sweep()
    [held] = ledger.claim("bee", start=True)
    clock.advance(1)
    assert held.fence is not None
    ledger.complete(held.fence)
    return ledger.events(held.id)


def test_the_drawing_of_the_readme_loads_nothing_and_ends_in_time() -> None:
    drawing = (FOLDER / "kill.svg").read_text()
    assert re.findall(r"https?://[^\"]+", drawing) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"([\d.]+)s linear infinite", drawing)) == {f"{LOOP_SECONDS:g}"}
    assert "prefers-reduced-motion" in drawing and "prefers-color-scheme" in drawing
    ET.fromstring(drawing)  # noqa: S314 - our own drawing
