"""Where somebody stands in the view, and what a key means there. Knows neither terminal nor ledger."""

from typing import NamedTuple

from holdfast.cli.board.panes import PANES, Row, chosen
from holdfast.cli.board.picture import Picture

STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdn": 10, "home": -1_000_000, "g": -1_000_000}
STEPS |= {"end": 1_000_000, "G": 1_000_000}
HELP = """\
up, down, k, j   move                 tab, shift-tab   next pane, the one before
enter            open what is marked  /                show only rows with a text in them
c                cancel the job       r                start the job over
p                pause the queue, or let it go on
?                this page            q                end
esc              close, or drop the filter"""


class Wish(NamedTuple):
    """Something to be done: cancel, replay, pause, unpause, open, open_queue or quit."""

    verb: str
    job_id: int = 0
    queue: str = ""


class Stand:
    def __init__(self) -> None:
        self.pane = 0
        self.marks: dict[int, str] = {}
        """The key of the marked row of each pane: it stays marked when others come and go."""
        self.filter = ""
        self.typing = False
        self.asking: Wish | None = None
        self.pages: list[str] | None = None
        """The lines of what was opened."""
        self.scroll = 0
        self.said = ""
        """What became of the last wish."""

    def rows(self, picture: Picture, pane: int) -> list[Row]:
        return chosen(PANES[pane], picture, self.filter)

    def index(self, rows: list[Row], pane: int) -> int:
        mark = self.marks.get(pane)
        return next((n for n, row in enumerate(rows) if row.key == mark), 0)

    def marked(self, picture: Picture) -> Row | None:
        rows = self.rows(picture, self.pane)
        return rows[self.index(rows, self.pane)] if rows else None

    def press(self, key: str, picture: Picture) -> Wish | None:
        """What is to be done about it; None where it only moves something."""
        self.said = ""
        if self.asking is not None:
            return self._answer(key)
        if self.typing:
            self._type(key)
        elif self.pages is not None:
            self._read(key)
        else:
            return self._browse(key, picture)
        return None

    def _answer(self, key: str) -> Wish | None:
        asked, self.asking = self.asking, None
        if key in ("y", "Y"):
            return asked
        self.said = "Nothing was done."
        return None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _read(self, key: str) -> None:
        if key in STEPS:
            self.scroll = max(0, min(len(self.pages or ()) - 1, self.scroll + STEPS[key]))
        elif key in ("escape", "q", "enter", "?"):
            self.pages, self.scroll = None, 0

    def open(self, lines: list[str]) -> None:
        self.pages, self.scroll = lines, 0

    def _browse(self, key: str, picture: Picture) -> Wish | None:
        if key == "q":
            return Wish("quit")
        if key in STEPS:
            self._move(STEPS[key], picture)
        elif key in ("tab", "backtab"):
            self.pane = (self.pane + (1 if key == "tab" else -1)) % len(PANES)
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter = ""
        elif key == "?":
            self.open(HELP.splitlines())
        else:
            return self._wish(key, picture)
        return None

    def _move(self, by: int, picture: Picture) -> None:
        rows = self.rows(picture, self.pane)
        if rows:
            self.marks[self.pane] = rows[max(0, min(len(rows) - 1, self.index(rows, self.pane) + by))].key

    def _wish(self, key: str, picture: Picture) -> Wish | None:
        row = self.marked(picture)
        if row is None:
            return None
        if key == "enter" and row.job_id is not None:
            return Wish("open", row.job_id)
        if key == "enter" and row.queue is not None:
            return Wish("open_queue", queue=row.queue)
        if key == "enter":
            self.open([f"{head}: {cell}" for head, cell in zip(PANES[self.pane].heads, row.cells, strict=True)])
        elif key in ("c", "r") and row.job_id is not None:
            self.asking = Wish("cancel" if key == "c" else "replay", row.job_id)
        elif key == "p" and row.queue is not None:
            paused = any(one.paused_at for one in picture.queues if one.name == row.queue)
            return Wish("unpause" if paused else "pause", queue=row.queue)
        return None

    @property
    def question(self) -> str:
        assert self.asking is not None
        what = "Cancel" if self.asking.verb == "cancel" else "Start over"
        return f"{what} job {self.asking.job_id}? y/n"
