"""The screen of `holdfast top`: rendering to lines, and the terminal, by curses."""

import codecs
import curses
import locale
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.output import clip, pad, shorten, usage_error, wants_colour, wrap
from holdfast.cli.output import display_width as columns_of
from holdfast.cli.top_model import LedgerSnapshot, SnapshotPoller
from holdfast.cli.top_view import PANES, Pane, PaneRow, ViewAction, ViewState
from holdfast.errors import HoldfastError
from holdfast.telemetry.formatters import printable

if TYPE_CHECKING:
    from collections.abc import Callable


CELL_COLUMNS_MAX = 60
KEY_HINTS = "tab pane  / filter  enter open  c cancel  r replay  p pause  ? help  q quit"
PAGER_HINTS = "esc back  up, down scroll"


class ScreenLine(NamedTuple):
    text: str
    tone: str = ""
    """title, head, mark, good, warn, bad or dim."""


def render_screen(
    stand: ViewState, snapshot: LedgerSnapshot | None, title: str, trouble: str, height: int, width: int
) -> list[ScreenLine]:
    """Exactly `height` lines, none wider than `width`."""
    lines = [_header(title, snapshot, trouble), *_render_body(stand, snapshot, max(0, height - 2), width)]
    lines = [*lines[: height - 1], *[ScreenLine("")] * (height - 1 - len(lines)), _footer(stand, trouble)]
    return [ScreenLine(clip(printable(line.text), width), line.tone) for line in lines][-height:]


def _header(title: str, snapshot: LedgerSnapshot | None, trouble: str) -> ScreenLine:
    """What cannot be looked at any more is not to be taken for what is."""
    if snapshot is None:
        return ScreenLine(f"Holdfast  {title}", "title")
    if trouble:
        return ScreenLine(f"Holdfast  STALE since {snapshot.now:%H:%M:%S}  {title}", "bad")
    sums = {
        status: sum(one.counts[status] for one in snapshot.queues) for status in ("queued", "running", "stalled", "dead_lettered")
    }
    told = ", ".join(f"{count:,} {status.replace('_', '-')}" for status, count in sums.items())
    return ScreenLine(f"Holdfast  {title}  {snapshot.now:%H:%M:%S}  {told}", "title")


def _footer(stand: ViewState, trouble: str) -> ScreenLine:
    if stand.asking is not None:
        return ScreenLine(stand.question, "mark")
    if stand.typing:
        return ScreenLine(f"/{stand.filter}", "mark")
    if trouble:
        return ScreenLine(trouble, "bad")
    if stand.said:
        return ScreenLine(stand.said, "warn")
    if stand.pages is not None:
        return ScreenLine(PAGER_HINTS, "dim")
    return ScreenLine(f"only with {stand.filter!r}: esc shows all" if stand.filter else KEY_HINTS, "dim")


def _render_body(stand: ViewState, snapshot: LedgerSnapshot | None, height: int, width: int) -> list[ScreenLine]:
    if stand.pages is not None:
        lines = [ScreenLine(part) for text in stand.pages[stand.scroll :] for part in wrap(printable(text), max(1, width))]
        return lines[:height]
    if snapshot is None:
        return [ScreenLine("Looking at the ledger …", "dim")]
    rows = [stand.rows(snapshot, number) for number in range(len(PANES))]
    lines = []
    for number, room in _row_shares([len(found) for found in rows], stand.pane, height):
        lines += render_pane(PANES[number], rows[number], room, stand.index(rows[number], number), number == stand.pane)
    return lines


def _row_shares(lengths: Sequence[int], focus: int, height: int) -> list[tuple[int, int]]:
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


def render_pane(pane: Pane, rows: Sequence[PaneRow], room: int, index: int, focused: bool) -> list[ScreenLine]:
    """A pane of at most `room` rows: those around the marked one."""
    first = max(0, min(index - room // 2, len(rows) - room))
    shown = rows[first : first + room]
    texts = [[shorten(printable(cell), CELL_COLUMNS_MAX) for cell in row.cells] for row in shown]
    widths = [max(map(columns_of, column)) for column in zip(pane.heads, *texts, strict=True)]
    right = [all(cell.isdigit() for cell in column) for column in zip(*texts, strict=True)] or [False] * len(pane.heads)
    marker = "▸" if focused else " "
    lines = [
        ScreenLine(f"{marker} {pane.name} ({len(rows)})", "title" if focused else "head"),
        ScreenLine("    " + _join_cells(pane.heads, widths, right), "dim"),
    ]
    for number, (row, cells) in enumerate(zip(shown, texts, strict=True), first):
        marked = focused and number == index
        lines.append(
            ScreenLine(f"  {'>' if marked else ' '} {_join_cells(cells, widths, right)}", "mark" if marked else row.tone)
        )
    return lines if shown or room == 0 else [*lines, ScreenLine("    nothing", "dim")]


def _join_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = (pad(cell, width, to_right=is_right) for cell, width, is_right in zip(cells, widths, right, strict=True))
    return "  ".join(fitted).rstrip()


KEY_MS = 100
"""How long a key is waited for before the screen is looked after again."""
ESCAPE_MS = 25
KEYS = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_NPAGE: "pgdn",
    curses.KEY_PPAGE: "pgup",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_BTAB: "backtab",
    curses.KEY_BACKSPACE: "backspace",
    curses.KEY_ENTER: "enter",
    curses.KEY_RESIZE: "resize",
}
CHARACTERS = {"\t": "tab", "\n": "enter", "\r": "enter", "\x1b": "escape", "\x7f": "backspace", "\b": "backspace"}
COLOURS = {"good": curses.COLOR_GREEN, "warn": curses.COLOR_YELLOW, "bad": curses.COLOR_RED}


class Terminal:
    """`do` fulfils a wish and answers what to say about it, or the lines of what was opened."""

    def __init__(self, watcher: SnapshotPoller, title: str, do: "Callable[[ViewAction], str | list[str]]") -> None:
        self._watcher = watcher
        self._title = title
        self._do = do
        self._stand = ViewState()
        self._styles: dict[str, int] = {}

    def run(self) -> None:
        """Until somebody quits, the terminal has gone, or SIGTERM, SIGHUP or SIGINT comes."""
        _prepare_environment()
        _check_terminal()
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            curses.set_escdelay(ESCAPE_MS)
            curses.wrapper(self._loop)
        except KeyboardInterrupt:
            return
        except curses.error as error:  # a terminal that has gone cannot be given back
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _loop(self, window: curses.window) -> None:
        self._styles = _styles()
        window.timeout(KEY_MS)
        seen = -1
        while True:
            if _resize(window) or seen != self._watcher.looks:
                seen = self._watcher.looks
                self._draw(window)
            key = _read_key(window)
            if key is None:
                continue
            if self._press(key):
                return
            self._draw(window)

    def _press(self, key: str) -> bool:
        """Whether this was the end."""
        snapshot = self._watcher.snapshot
        if snapshot is None or key == "resize":
            return key == "q"
        wish = self._stand.press(key, snapshot)
        if wish is None:
            return False
        if wish.verb == "quit":
            return True
        self._perform(wish)
        return False

    def _perform(self, wish: ViewAction) -> None:
        try:
            done = self._do(wish)
        except HoldfastError as error:
            self._stand.said = f"{error.code}: {error.message}"
            return
        if isinstance(done, str):
            self._stand.said = done
            self._watcher.refresh()
        else:
            self._stand.open(done)

    def _draw(self, window: curses.window) -> None:
        height, width = window.getmaxyx()
        window.erase()
        for row, line in enumerate(
            render_screen(self._stand, self._watcher.snapshot, self._title, self._watcher.trouble, height, width)
        ):
            self._write(window, row, line)
        window.refresh()

    def _write(self, window: curses.window, row: int, line: ScreenLine) -> None:
        with suppress(curses.error):  # the last cell cannot be passed, and a terminal may shrink while it is written on
            window.addstr(row, 0, line.text, self._styles.get(line.tone, 0))


def _prepare_environment() -> None:
    """For curses, which takes its characters from the locale and its size from variables, if they are set, whatever they say."""
    with suppress(locale.Error):  # SSH brings along the name of one that may not be installed here
        locale.setlocale(locale.LC_ALL, "")
    with suppress(locale.Error, LookupError):
        if codecs.lookup(locale.nl_langinfo(locale.CODESET)).name == "ascii":
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")  # a locale of C says nothing about the terminal
    for name in ("LINES", "COLUMNS"):
        os.environ.pop(name, None)


def _check_terminal() -> None:
    try:
        curses.setupterm()
        is_known = curses.tigetstr("cup") is not None
    except curses.error:
        is_known = False
    if not is_known:
        raise usage_error(
            f"a terminal of the kind {os.environ.get('TERM', '')!r:.40} cannot be drawn on", action="Use --once, or set TERM."
        )


def _resize(window: curses.window) -> bool:
    """Asked of the terminal itself: curses does not look where a signal was lost."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:  # it has gone, and nobody was told by a signal
        raise KeyboardInterrupt from None
    if (lines, columns) == window.getmaxyx() or not lines or not columns:
        return False
    curses.resizeterm(lines, columns)
    window.clear()
    return True


def _styles() -> dict[str, int]:
    styles = {"title": curses.A_BOLD, "head": curses.A_BOLD, "mark": curses.A_REVERSE, "dim": curses.A_DIM}
    if curses.tigetstr("civis"):
        curses.curs_set(0)
    if curses.has_colors() and wants_colour(sys.stdout):
        curses.use_default_colors()
        for number, (tone, colour) in enumerate(COLOURS.items(), 1):
            curses.init_pair(number, colour, -1)
            styles[tone] = curses.color_pair(number)
    return styles


def _read_key(window: curses.window) -> str | None:
    try:
        found = window.get_wch()
    except curses.error:
        return None
    if isinstance(found, int):
        return KEYS.get(found)
    return CHARACTERS.get(found, found)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
