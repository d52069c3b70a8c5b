"""The screen of `holdfast top`: rendering to lines, and the curses terminal."""

import codecs
import curses
import locale
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.output import clip, pad, shorten, usage_error, wants_colour, wrap
from holdfast.cli.output import display_width as columns_of
from holdfast.cli.top_view import LedgerSnapshot, Pane, PaneRow, SnapshotPoller, ViewAction, ViewState, shown_panes
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
    state: ViewState, snapshot: LedgerSnapshot | None, title: str, trouble: str, height: int, width: int
) -> list[ScreenLine]:
    """Return exactly `height` lines, none wider than `width`."""
    lines = [_header(title, snapshot, trouble), *_render_body(state, snapshot, max(0, height - 2), width)]
    lines = [*lines[: height - 1], *[ScreenLine("")] * (height - 1 - len(lines)), _footer(state, trouble)]
    return [ScreenLine(clip(printable(line.text), width), line.tone) for line in lines][-height:]


def _header(title: str, snapshot: LedgerSnapshot | None, trouble: str) -> ScreenLine:
    """Return the first line. It says if the snapshot is stale, so that old data is not taken for current data."""
    if snapshot is None:
        return ScreenLine(f"Holdfast  {title}", "title")
    if trouble:
        return ScreenLine(f"Holdfast  STALE since {snapshot.now:%H:%M:%S}  {title}", "bad")
    sums = {
        status: sum(one.counts[status] for one in snapshot.queues) for status in ("queued", "running", "stalled", "dead_lettered")
    }
    counts = ", ".join(f"{count:,} {status.replace('_', '-')}" for status, count in sums.items())
    return ScreenLine(f"Holdfast  {title}  {snapshot.now:%H:%M:%S}  {counts}", "title")


def _footer(state: ViewState, trouble: str) -> ScreenLine:
    if state.to_confirm is not None:
        return ScreenLine(state.question, "mark")
    if state.typing:
        return ScreenLine(f"/{state.filter}", "mark")
    if trouble:
        return ScreenLine(trouble, "bad")
    if state.message:
        return ScreenLine(state.message, "warn")
    if state.pages is not None:
        return ScreenLine(PAGER_HINTS, "dim")
    return ScreenLine(f"only with {state.filter!r}: esc shows all" if state.filter else KEY_HINTS, "dim")


def _render_body(state: ViewState, snapshot: LedgerSnapshot | None, height: int, width: int) -> list[ScreenLine]:
    if state.pages is not None:
        lines = [ScreenLine(part) for text in state.pages[state.scroll :] for part in wrap(printable(text), max(1, width))]
        return lines[:height]
    if snapshot is None:
        return [ScreenLine("Reading the ledger …", "dim")]
    panes = shown_panes(snapshot)
    state.pane = min(state.pane, len(panes) - 1)
    rows = [state.rows(snapshot, number) for number in range(len(panes))]
    lines = []
    for number, rows_max in _row_shares([len(found) for found in rows], state.pane, height):
        lines += render_pane(panes[number], rows[number], rows_max, state.index(rows[number], number), number == state.pane)
    return lines


def _row_shares(lengths: Sequence[int], focus: int, height: int) -> list[tuple[int, int]]:
    """Return how many rows each pane may show. Each has two heading lines. If they do not all fit, show only the focused pane."""
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


def render_pane(pane: Pane, rows: Sequence[PaneRow], rows_max: int, index: int, focused: bool) -> list[ScreenLine]:
    """Return the lines of a pane with at most `rows_max` rows, around the marked one."""
    first = max(0, min(index - rows_max // 2, len(rows) - rows_max))
    shown = rows[first : first + rows_max]
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
    return lines if shown or rows_max == 0 else [*lines, ScreenLine("    nothing", "dim")]


def _join_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = (pad(cell, width, to_right=is_right) for cell, width, is_right in zip(cells, widths, right, strict=True))
    return "  ".join(fitted).rstrip()


KEY_MS = 100
"""How long to wait for a key before the screen is checked again."""
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
    """Draws the screen and handles keys. `perform` runs an action and returns a message, or the lines of a page to open."""

    def __init__(self, poller: SnapshotPoller, title: str, perform: "Callable[[ViewAction], str | list[str]]") -> None:
        self._poller = poller
        self._title = title
        self._perform = perform
        self._state = ViewState()
        self._styles: dict[str, int] = {}

    def run(self) -> None:
        """Run until the user quits, the terminal is closed, or SIGTERM, SIGHUP or SIGINT arrives."""
        _prepare_environment()
        _check_terminal()
        before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            curses.set_escdelay(ESCAPE_MS)
            curses.wrapper(self._loop)
        except KeyboardInterrupt:
            return
        except curses.error as error:  # a closed terminal cannot be restored
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
            if _resize(window) or seen != self._poller.reads:
                seen = self._poller.reads
                self._draw(window)
            key = _read_key(window)
            if key is None:
                continue
            if self._press(key):
                return
            self._draw(window)

    def _press(self, key: str) -> bool:
        """Handle a key. Return True to quit."""
        snapshot = self._poller.snapshot
        if snapshot is None or key == "resize":
            return key == "q"
        action = self._state.press(key, snapshot)
        if action is None:
            return False
        if action.verb == "quit":
            return True
        self._run_action(action)
        return False

    def _run_action(self, action: ViewAction) -> None:
        try:
            done = self._perform(action)
        except HoldfastError as error:
            self._state.message = f"{error.code}: {error.message}"
            return
        if isinstance(done, str):
            self._state.message = done
            self._poller.refresh()
        else:
            self._state.open(done)

    def _draw(self, window: curses.window) -> None:
        height, width = window.getmaxyx()
        window.erase()
        for row, line in enumerate(
            render_screen(self._state, self._poller.snapshot, self._title, self._poller.trouble, height, width)
        ):
            self._write(window, row, line)
        window.refresh()

    def _write(self, window: curses.window, row: int, line: ScreenLine) -> None:
        with suppress(curses.error):  # curses fails after the last cell, and the terminal may shrink during a write
            window.addstr(row, 0, line.text, self._styles.get(line.tone, 0))


def _prepare_environment() -> None:
    """Set the locale and the size for curses.

    curses takes its encoding from the locale. It would take the size from LINES and COLUMNS, even if they are wrong.
    """
    with suppress(locale.Error):  # SSH passes on the name of a locale that may not be installed here
        locale.setlocale(locale.LC_ALL, "")
    with suppress(locale.Error, LookupError):
        if codecs.lookup(locale.nl_langinfo(locale.CODESET)).name == "ascii":
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")  # the C locale does not describe the terminal
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
            f"a terminal of type {os.environ.get('TERM', '')!r:.40} is not supported", action="Use --once, or set TERM."
        )


def _resize(window: curses.window) -> bool:
    """Adapt to the terminal's size. Return whether it has changed. Ask the terminal, because a resize signal may be lost."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:  # the terminal is closed, and no signal arrived
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
