"""Anchors: heads outside the database, at most as often as set, which never delay sealing."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger, ValidationError
from holdfast.services.anchors import FileAnchor
from holdfast.services.sealer import Sealer
from holdfast.store.sealing import HeadRow
from holdfast.testing import ManualClock
from tests.support import auditor
from tests.support.sealing import drawn, enrol

SERVER = drawn()


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/holdfast.db", clock=clock, keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        yield ledger


def notes(path: Path) -> list[str]:
    """The notes in the order in which they were appended."""
    parts = path.read_text().split("\n\n")
    assert parts.pop() == ""
    return [f"{text}\n\n{signed}\n" for text, signed in zip(parts[::2], parts[1::2], strict=True)]


class Refusing:
    name = "refusing"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def keep(self, head: HeadRow) -> None:
        self.asked.append(head.size)
        raise OSError("no room")


def test_heads_are_appended_to_a_file_and_read_back_unchanged(ledger: Ledger, tmp_path: Path):
    file = tmp_path / "heads.txt"
    for _ in range(2):
        ledger.enqueue("index")
        with Sealer(ledger, anchors=[FileAnchor(file)]) as sealer:
            sealer.tick()
    assert notes(file) == [head.note for head in ledger.heads()]
    assert [auditor.read_head(note, SERVER.public.public)[1] for note in notes(file)] == [2, 3]


def test_a_truncated_note_is_separated_from_the_next(ledger: Ledger, tmp_path: Path):
    file = tmp_path / "heads.txt"
    file.write_text("holdfast/xyz\n17\nAAA")
    with Sealer(ledger, anchors=[FileAnchor(file)]) as sealer:
        sealer.tick()
    [head] = ledger.heads()
    assert file.read_text().endswith(f"AAA\n\n{head.note}\n")


def test_a_file_needs_a_folder(tmp_path: Path):
    for path in (tmp_path, tmp_path / "none" / "heads.txt"):
        with pytest.raises(ValidationError):
            FileAnchor(path)


def test_anchors_get_heads_at_their_interval_and_the_last_head_at_the_end(ledger: Ledger, clock: ManualClock, tmp_path: Path):
    file = tmp_path / "heads.txt"
    with Sealer(ledger, anchors=[FileAnchor(file)], anchor_every="60s") as sealer:
        for _ in range(7):
            ledger.enqueue("index")
            sealer.tick()
            sealer.anchor_service.tick()
            clock.advance(25)
        assert [auditor.read_head(note, SERVER.public.public)[1] for note in notes(file)] == [2, 5, 8]
        sealer.anchor_service.tick()
        ledger.enqueue("index")
        sealer.tick()
    assert [auditor.read_head(note, SERVER.public.public)[1] for note in notes(file)] == [2, 5, 8, 9]


def test_an_anchor_that_fails_gets_the_next_head_and_sealing_continues(
    ledger: Ledger, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    anchor = Refusing()
    with caplog.at_level(logging.WARNING, "holdfast.seal"), Sealer(ledger, anchors=[anchor]) as sealer:
        for _ in range(2):
            ledger.enqueue("index")
            assert sealer.tick() is not None
            sealer.anchor_service.tick()
            clock.advance(60)
    assert anchor.asked[:2] == [2, 3]
    assert "the anchor refusing did not keep the head of size 2: no room" in caplog.text
    assert [head.size for head in ledger.heads()] == [2, 3]
