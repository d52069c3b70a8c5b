"""An animated drawing of a job whose worker is killed, made from the events of a real run."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from holdfast import Event, EventType
from holdfast.demo.verification import actor_name

LOOP_SECONDS = 8.0
FIRST_SECONDS, EACH_SECONDS = 0.3, 0.8
WIDTH, TOP, ROW = 820, 66, 34
KILLED_X, JOB_X, RESCUER_X = 110, 410, 710
BOX = 300

STYLE = """
svg { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; background: #fff; color: #1b1f24 }
text { fill: currentColor } .dim { fill: #57606a } .line { stroke: #57606a; stroke-width: 1.5; fill: none }
.small { font-size: 12px }
.life { stroke: #afb8c1; stroke-width: 2 } .head { fill: #57606a } .box { fill: #f0f2f5; stroke: #afb8c1 }
.bad { fill: #b42318 } .good { fill: #0b7a4b } .warn { fill: #9a5b00 } .cross { stroke: #b42318; stroke-width: 4; fill: none }
@media (prefers-color-scheme: dark) {
  svg { background: #12161c; color: #e6e8eb } .dim { fill: #9aa4af } .line { stroke: #9aa4af } .head { fill: #9aa4af }
  .life { stroke: #4a525c } .box { fill: #20262e; stroke: #4a525c }
  .bad { fill: #ff8a80 } .good { fill: #5fdba0 } .warn { fill: #f0b45a } .cross { stroke: #ff8a80 }
}
"""


class Row(NamedTuple):
    """One line of the drawing: what the ledger records, who caused it, and when."""

    text: str
    look: str = ""
    x: int = JOB_X
    """Where the arrow comes from. JOB_X: the ledger itself, without an arrow."""
    verb: str = ""
    when: str = ""


def draw_kill(events: Sequence[Event], refusal: str) -> str:
    """Return the drawing as SVG. `refusal` is the code of the error that the killed worker's late write got."""
    rows, killed, rescuer = _rows(events, refusal)
    height = TOP + ROW * len(rows) + 20
    size = f'width="{WIDTH}" height="{height}"'
    cross = next(number for number, row in enumerate(rows) if row.look == "bad")
    drawn = [_animated(number, _killed(number, row) if number == cross else _row(number, row)) for number, row in enumerate(rows)]
    title = f"{killed} is killed in mid-job, {rescuer} finishes the job, and a late write of {killed} is refused"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{_animation(len(rows))}</style>",
            _head(KILLED_X, f"worker {killed}"),
            _head(JOB_X, f"the ledger: job {events[0].job_id}"),
            _head(RESCUER_X, f"worker {rescuer}"),
            f'<path class="life" d="M{KILLED_X} {TOP - 12}V{TOP + ROW * cross}"/>',
            f'<path class="life" d="M{RESCUER_X} {TOP - 12}V{height - 14}"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _rows(events: Sequence[Event], refusal: str) -> tuple[list[Row], str, str]:
    """Return the rows, the name of the killed worker, and that of the worker that finished the job."""
    began = events[0].received_at
    claims = [event for event in events if event.type is EventType.CLAIMED]
    killed, rescuer = actor_name(claims[0]), actor_name(claims[-1])
    x_of = {killed: KILLED_X, rescuer: RESCUER_X}
    rows = []
    for event in events:
        when, x = f"{(event.received_at - began).total_seconds():.2f} s", x_of.get(actor_name(event), JOB_X)
        match event.type:
            case EventType.ENQUEUED:
                rows.append(Row("queued", when=when))
            case EventType.CLAIMED:
                rows.append(Row(f"running, attempt {event.attempt}", "", x, "claim", when))
                if event is claims[0]:
                    rows.append(Row("SIGKILL", "bad", KILLED_X))
            case EventType.STALLED:
                rows.append(Row(f"stalled: {event.reason}", "warn", when=when))
            case EventType.REQUEUED:
                rows.append(Row("queued again", when=when))
            case EventType.SUCCEEDED:
                rows.append(Row("succeeded", "good", x, "complete", when))
    rows.append(Row(f"refused: {refusal}", "good", KILLED_X, "complete, too late"))
    return rows, killed, rescuer


def _animation(count: int) -> str:
    """Return the styles that show one row after another, again and again. Readers who want no motion see all rows."""
    parts = ["g.row { opacity: 1 }", "@media (prefers-reduced-motion: no-preference) {"]
    for number in range(count):
        share = 100 * (FIRST_SECONDS + EACH_SECONDS * number) / LOOP_SECONDS
        parts.append(f"@keyframes r{number} {{ 0%, {share:.1f}% {{ opacity: 0 }} {share + 3:.1f}%, 100% {{ opacity: 1 }} }}")
        parts.append(f".r{number} {{ animation: r{number} {LOOP_SECONDS:g}s linear infinite }}")
    return "\n".join([*parts, "}", ""])


def _animated(number: int, drawn: str) -> str:
    return f'<g class="row r{number}">{drawn}</g>'


def _head(x: int, text: str) -> str:
    return f'<text x="{x}" y="34" text-anchor="middle" font-weight="600">{escape(text)}</text>'


def _row(number: int, row: Row) -> str:
    y = TOP + ROW * number
    left = JOB_X - BOX // 2
    drawn = [
        f'<rect class="box" x="{left}" y="{y - 14}" width="{BOX}" height="28" rx="4"/>',
        f'<text class="{row.look}" x="{left + 12}" y="{y + 5}">{escape(row.text)}</text>',
        f'<text class="dim" x="{left + BOX - 12}" y="{y + 5}" text-anchor="end">{row.when}</text>',
    ]
    if row.x != JOB_X:
        sign = 1 if row.x < JOB_X else -1
        end = JOB_X - sign * (BOX // 2 + 4)
        drawn += [
            f'<path class="line" d="M{row.x + sign * 6} {y + 4}H{end - sign * 6}"/>',
            f'<path class="head" d="M{end} {y + 4}l{-sign * 9} -5v10z"/>',
            f'<text class="dim small" x="{(row.x + end) // 2}" y="{y - 4}" text-anchor="middle">{escape(row.verb)}</text>',
        ]
    return "".join(drawn)


def _killed(number: int, row: Row) -> str:
    x, y = row.x, TOP + ROW * number
    return (
        f'<path class="cross" d="M{x - 9} {y - 9}l18 18m0 -18l-18 18"/>'
        f'<text class="bad" x="{x + 18}" y="{y + 5}" font-weight="600">{row.text}</text>'
    )
