"""The view as lines of text, for a screen of any size. Nothing in them speaks to the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.cli.board.panes import PANES, Pane, Row
from holdfast.cli.board.picture import Picture
from holdfast.cli.board.stand import Stand
from holdfast.cli.columns import clipped, folded, padded, shortened
from holdfast.cli.columns import width as columns_of
from holdfast.telemetry.lines import visible

CELL_COLUMNS_MAX = 60
FOOT = "tab pane  / filter  enter open  c cancel  r replay  p pause  ? help  q quit"
READING = "esc back  up, down scroll"


class Line(NamedTuple):
    text: str
    tone: str = ""
    """title, head, mark, good, warn, bad or dim."""


def screen(stand: Stand, picture: Picture | None, title: str, trouble: str, height: int, width: int) -> list[Line]:
    """Exactly `height` lines, none wider than `width`."""
    lines = [_top(title, picture, trouble), *_body(stand, picture, max(0, height - 2), width)]
    lines = [*lines[: height - 1], *[Line("")] * (height - 1 - len(lines)), _foot(stand, trouble)]
    return [Line(clipped(visible(line.text), width), line.tone) for line in lines][-height:]


def _top(title: str, picture: Picture | None, trouble: str) -> Line:
    """What cannot be looked at any more is not to be taken for what is."""
    if picture is None:
        return Line(f"Holdfast  {title}", "title")
    if trouble:
        return Line(f"Holdfast  STALE since {picture.now:%H:%M:%S}  {title}", "bad")
    sums = {
        status: sum(one.counts[status] for one in picture.queues) for status in ("queued", "running", "stalled", "dead_lettered")
    }
    told = ", ".join(f"{count:,} {status.replace('_', '-')}" for status, count in sums.items())
    return Line(f"Holdfast  {title}  {picture.now:%H:%M:%S}  {told}", "title")


def _foot(stand: Stand, trouble: str) -> Line:
    if stand.asking is not None:
        return Line(stand.question, "mark")
    if stand.typing:
        return Line(f"/{stand.filter}", "mark")
    if trouble:
        return Line(trouble, "bad")
    if stand.said:
        return Line(stand.said, "warn")
    if stand.pages is not None:
        return Line(READING, "dim")
    return Line(f"only with {stand.filter!r}: esc shows all" if stand.filter else FOOT, "dim")


def _body(stand: Stand, picture: Picture | None, height: int, width: int) -> list[Line]:
    if stand.pages is not None:
        lines = [Line(part) for text in stand.pages[stand.scroll :] for part in folded(visible(text), max(1, width))]
        return lines[:height]
    if picture is None:
        return [Line("Looking at the ledger …", "dim")]
    rows = [stand.rows(picture, number) for number in range(len(PANES))]
    lines = []
    for number, room in _shares([len(found) for found in rows], stand.pane, height):
        lines += pane_lines(PANES[number], rows[number], room, stand.index(rows[number], number), number == stand.pane)
    return lines


def _shares(lengths: Sequence[int], focus: int, height: int) -> list[tuple[int, int]]:
    """How many rows each pane may show. Each has two lines of headings; where that is too much, only the focused one is left."""
    left = height - 2 * len(lengths)
    if left < len(lengths):
        return [(focus, max(0, height - 2))]
    even = left // len(lengths)
    shares = [min(max(1, length), even) for length in lengths]
    left -= sum(shares)
    for number in [focus, *range(len(lengths))]:
        more = min(left, max(0, lengths[number] - shares[number]))
        shares[number] += more
        left -= more
    return list(enumerate(shares))


def pane_lines(pane: Pane, rows: Sequence[Row], room: int, index: int, focused: bool) -> list[Line]:
    """A pane of at most `room` rows: those around the marked one."""
    first = max(0, min(index - room // 2, len(rows) - room))
    shown = rows[first : first + room]
    texts = [[shortened(visible(cell), CELL_COLUMNS_MAX) for cell in row.cells] for row in shown]
    widths = [max(map(columns_of, column)) for column in zip(pane.heads, *texts, strict=True)]
    right = [all(cell.isdigit() for cell in column) for column in zip(*texts, strict=True)] or [False] * len(pane.heads)
    marker = "▸" if focused else " "
    lines = [
        Line(f"{marker} {pane.name} ({len(rows)})", "title" if focused else "head"),
        Line("    " + _joined(pane.heads, widths, right), "dim"),
    ]
    for number, (row, cells) in enumerate(zip(shown, texts, strict=True), first):
        marked = focused and number == index
        lines.append(Line(f"  {'>' if marked else ' '} {_joined(cells, widths, right)}", "mark" if marked else row.tone))
    return lines if shown or room == 0 else [*lines, Line("    nothing", "dim")]


def _joined(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = (padded(cell, width, to_right=is_right) for cell, width, is_right in zip(cells, widths, right, strict=True))
    return "  ".join(fitted).rstrip()
