"""A figure's table."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bench.cpu import Cpu
from bench.rounds import Turn, cpus, median, rates


class Row(NamedTuple):
    what: str
    ours: float
    base: float
    target: float | None
    events: int
    """The number of events that were found."""
    rounds: dict[str, list[float]]
    ours_cpu: Sequence[Cpu] = ()
    base_cpu: Sequence[Cpu] = ()
    """Processor time for each item, round by round, if it was counted."""


def compared(
    what: str,
    ours: Sequence[Turn],
    base: Sequence[Turn],
    target: float | None,
    events: int,
    names: tuple[str, str] = ("ours", "raw"),
) -> Row:
    """The medians of two contenders, with their processor time. Their rounds get these names."""
    rounds = dict(zip(names, (rates(ours), rates(base)), strict=True))
    return Row(what, median(rates(ours)), median(rates(base)), target, events, rounds, cpus(ours), cpus(base))


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
    ours_cpu, base_cpu = any(row.ours_cpu for row in rows), any(row.base_cpu for row in rows)
    cpu = "µs of processor time"
    cells = [
        (
            "",
            *((heading.ours, cpu) if ours_cpu else (heading.ours,)),
            *((heading.base, cpu) if base_cpu else (heading.base,)),
            "growth" if grows else "ratio",
            "target",
            "",
        )
    ]
    cells += [
        (
            row.what,
            _amount(row.ours, heading),
            *((_cpu(row.ours_cpu),) if ours_cpu else ()),
            _amount(row.base, heading),
            *((_cpu(row.base_cpu),) if base_cpu else ()),
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


def _cpu(found: Sequence[Cpu]) -> str:
    return str(Cpu.median(found)) if found else "–"


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
    return {"name": name, **heading._asdict(), "rows": [_plain_row(heading, row) for row in rows]}


def _plain_row(heading: Heading, row: Row) -> dict[str, Any]:
    cpu = {name: [one._asdict() for one in getattr(row, name)] for name in ("ours_cpu", "base_cpu")}
    return row._asdict() | cpu | {"met": met(heading, row)}
