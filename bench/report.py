"""A figure's table."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple


class Row(NamedTuple):
    what: str
    ours: float
    base: float
    target: float | None
    events: int
    """The number of events that were found."""
    rounds: dict[str, list[float]]


class Heading(NamedTuple):
    """The name of a figure, its columns, and the value that is compared with the target."""

    title: str
    ours: str = "Holdfast"
    base: str = "raw"
    judged: Literal["ratio", "ratio_most", "rate", "growth", "most"] = "ratio"
    unit: str = "/s"


def met(heading: Heading, row: Row) -> bool | None:
    if row.target is None:
        return None
    if heading.judged == "growth":
        return row.ours - row.base < row.target
    if heading.judged == "most":
        return row.ours <= row.target
    if heading.judged == "ratio_most":
        return row.ours / row.base <= row.target
    return (row.ours / row.base if heading.judged == "ratio" else row.ours) >= row.target


def table(heading: Heading, rows: Sequence[Row]) -> str:
    grows = heading.judged == "growth"
    cells = [("", heading.ours, heading.base, "growth" if grows else "ratio", "target", "")]
    cells += [
        (
            row.what,
            _amount(row.ours, heading),
            _amount(row.base, heading),
            _amount(row.ours - row.base, heading) if grows else f"{row.ours / row.base:.2f}",
            _target(row.target, heading),
            {None: "", True: "met", False: "MISSED"}[met(heading, row)],
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
        for line in cells
    ]
    return "\n".join([heading.title, *(f"  {line.rstrip()}" for line in lines)])


def _amount(value: float, heading: Heading) -> str:
    if heading.judged == "growth":
        return f"{value:,.1f}{heading.unit}"
    return f"{value:,.2f}{heading.unit}" if heading.judged == "most" else f"{value:,.0f}{heading.unit}"


def _target(value: float | None, heading: Heading) -> str:
    if value is None:
        return "–"
    if heading.judged in ("ratio", "ratio_most"):
        return f"{'≥' if heading.judged == 'ratio' else '≤'} {value:.2f}"
    return f"{ {'growth': '<', 'most': '≤'}.get(heading.judged, '≥') } {_amount(value, heading)}"


def plain(name: str, heading: Heading, rows: Sequence[Row]) -> dict[str, Any]:
    """The same for another program to read."""
    return {"name": name, **heading._asdict(), "rows": [row._asdict() | {"met": met(heading, row)} for row in rows]}
