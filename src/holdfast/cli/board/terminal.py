"""The view on a real terminal, by curses: it is in every Python, works over SSH, and gives the terminal back whatever happens."""

import codecs
import curses
import locale
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.cli.board.draw import Line, screen
from holdfast.cli.board.stand import Stand, Wish
from holdfast.cli.board.watcher import Watcher
from holdfast.cli.envelope import misuse
from holdfast.cli.page import wants_colour
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def __init__(self, watcher: Watcher, title: str, do: "Callable[[Wish], str | list[str]]") -> None:
        self._watcher = watcher
        self._title = title
        self._do = do
        self._stand = Stand()
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
            if _resized(window) or seen != self._watcher.looks:
                seen = self._watcher.looks
                self._draw(window)
            key = _key(window)
            if key is None:
                continue
            if self._press(key):
                return
            self._draw(window)

    def _press(self, key: str) -> bool:
        """Whether this was the end."""
        picture = self._watcher.picture
        if picture is None or key == "resize":
            return key == "q"
        wish = self._stand.press(key, picture)
        if wish is None:
            return False
        if wish.verb == "quit":
            return True
        self._fulfil(wish)
        return False

    def _fulfil(self, wish: Wish) -> None:
        try:
            done = self._do(wish)
        except HoldfastError as error:
            self._stand.said = f"{error.code}: {error.message}"
            return
        if isinstance(done, str):
            self._stand.said = done
            self._watcher.look_again()
        else:
            self._stand.open(done)

    def _draw(self, window: curses.window) -> None:
        height, width = window.getmaxyx()
        window.erase()
        for row, line in enumerate(screen(self._stand, self._watcher.picture, self._title, self._watcher.trouble, height, width)):
            self._write(window, row, line)
        window.refresh()

    def _write(self, window: curses.window, row: int, line: Line) -> None:
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
        raise misuse(
            f"a terminal of the kind {os.environ.get('TERM', '')!r:.40} cannot be drawn on", action="Use --once, or set TERM."
        )


def _resized(window: curses.window) -> bool:
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


def _key(window: curses.window) -> str | None:
    try:
        found = window.get_wch()
    except curses.error:
        return None
    if isinstance(found, int):
        return KEYS.get(found)
    return CHARACTERS.get(found, found)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
