"""`holdfast top`: print the overview of a ledger. On a terminal, print it again each second."""

import contextlib
import os
import signal
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.command import CommandResult, as_json_option, db_option, key_option, load_keys, open_ledger, print_result
from holdfast.cli.config import ledger_url, without_password
from holdfast.cli.output import Page, clip, usage_error
from holdfast.cli.queue import STATUSES, show_queues
from holdfast.cli.values import duration
from holdfast.cli.worker import replaced_workers, show_workers
from holdfast.core.doctor.model import Severity
from holdfast.core.text import format_age
from holdfast.errors import HoldfastError
from holdfast.ledger import WorkerRecord
from holdfast.ledger.overview import AgentSession, Overview
from holdfast.telemetry.formatters import printable

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

EVERY_SECONDS_MIN = 0.1
READING_SHARE_MAX = 0.2
"""The share of time spent on reading. If reading takes long, the ledger is read less often."""
ROWS_MAX, FINDINGS_MAX = 200, 10
OPEN_SCREEN, CLOSE_SCREEN = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"
"""Begin a screen of its own without a cursor, and return to the one before."""
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class LedgerOverview(msgspec.Struct, frozen=True):
    """The overview of a ledger, its workers and its agents, 200 of each at most."""

    overview: Overview
    workers: list[WorkerRecord]
    agents: list[AgentSession]


@click.command()
@click.option("--every", type=duration, default="1s", show_default=True, help="The time between two readings.")
@click.option("--once", is_flag=True, help="Print the ledger as it is now, and exit. The default without a terminal.")
@key_option
@db_option
@as_json_option
def top(*, every: timedelta, once: bool, keys: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Watch a ledger live.

    It shows the numbers of jobs, the largest queues, workers, agents and what needs attention. Ctrl-C ends it.

    \b
    Try:
      holdfast top --once
    """
    url, ring = ledger_url(db), load_keys(keys)
    with open_ledger(url, ring, create=False) as ledger:
        if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            found = read_overview(ledger)
            print_result(CommandResult(found, lambda page: show_overview(page, found)), as_json)
        else:
            _watch(ledger, without_password(url), max(EVERY_SECONDS_MIN, every.total_seconds()))


def read_overview(ledger: "Ledger") -> LedgerOverview:
    return LedgerOverview(ledger.overview(), ledger.workers(limit=ROWS_MAX), ledger.agents(limit=ROWS_MAX))


def show_overview(page: Page, found: LedgerOverview) -> None:
    overview, now = found.overview, found.overview.now
    counts, rates, workers = overview.counts, overview.rates, overview.workers
    page.fields(
        [
            ("jobs", ", ".join(f"{counts[name]:,} {name.replace('_', '-')}" for name in STATUSES if name in counts) or "none"),
            (
                f"a minute, over the last {max(1, rates.window_s // 60)} min" if rates else "a minute",
                rates
                and f"{rates.enqueued:.1f} enqueued, {rates.started:.1f} started, {rates.succeeded:.1f} succeeded, "
                f"{rates.failed:.1f} failed",
            ),
            ("failed in 24 h", overview.failed_24h),
            ("dead letters", overview.dead_letters),
            ("attention", overview.attention),
        ]
    )
    page.heading(f"Queues, the largest {len(overview.queues)}")
    if overview.queues:
        show_queues(page, overview.queues, now)
    page.heading(f"Workers: {workers.fresh} fresh, {workers.late} late, {workers.silent} silent")
    if found.workers:
        show_workers(page, found.workers, now, replaced_workers(found.workers))
    if found.agents:
        page.heading(f"Agents ({len(found.agents)})")
        page.table(
            ("agent", "session", "task", "holding", "seen"),
            [
                (one.name, one.session, one.focus or "–", one.holding, f"{format_age(now - one.seen_at)} ago")
                for one in found.agents
            ],
        )
    warnings = [finding for finding in overview.findings if finding.severity is Severity.WARNING]
    if warnings:
        page.heading("Findings")
        for finding in warnings[:FINDINGS_MAX]:
            page.line(f"  {finding.words}. {finding.action}")


class _Lines(Page):
    """A page that collects its lines instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def line(self, text: str = "", **_: Any) -> None:
        self.lines.append(printable(text))


def _watch(ledger: "Ledger", title: str, every_s: float) -> None:
    """Draw the overview until Ctrl-C, a signal, or the end of the terminal."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        kind = os.environ.get("TERM", "")
        raise usage_error(f"a terminal of type {kind!r:.40} is not supported", action="Use --once, or set TERM.")
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _draw_frames(ledger, title, every_s)
    finally:
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), CLOSE_SCREEN)
        for number, handler in before.items():
            signal.signal(number, handler)


def _draw_frames(ledger: "Ledger", title: str, every_s: float) -> None:
    lines = _Lines()
    seen, is_terminal = "", _write(OPEN_SCREEN + HOME.encode())
    while is_terminal:
        began = time.monotonic()
        try:
            found = read_overview(ledger)
            seen, lines = f"{found.overview.now:%H:%M:%S}", _Lines()
            show_overview(lines, found)
            heads = [f"Holdfast  {title}  {seen}", ""]
        except HoldfastError as error:
            heads = [f"Holdfast  STALE since {seen or 'the start'}  {title}", printable(f"{error.code}: {error.message}")]
        is_terminal = _draw([*heads, *lines.lines])
        time.sleep(max(every_s, (time.monotonic() - began) / READING_SHARE_MAX))


def _draw(lines: list[str]) -> bool:
    """Write over the screen in one piece, so that it does not flicker. Return False if the terminal is closed."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return False
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"… {len(lines) - rows + 1} more lines: holdfast top --once"]
    return _write((HOME + "\r\n".join(clip(line, columns - 1) + END_OF_LINE for line in lines) + END_OF_SCREEN).encode())


def _write(text: bytes) -> bool:
    try:
        while text:
            text = text[os.write(sys.stdout.fileno(), text) :]
    except OSError:
        return False
    return True
