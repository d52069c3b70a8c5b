"""Draw the diagram of a job's statuses as SVG, from the Mermaid text on its page: browsers draw Mermaid only with a script."""

import re
from typing import NamedTuple

WIDTH, HEIGHT = 640, 500
MIDDLE, RIGHT = 225, 395


class Box(NamedTuple):
    x: int
    """The middle."""
    y: int
    width: int = 106
    height: int = 40


BOXES = {
    "queued": Box(MIDDLE, 70),
    "claimed": Box(MIDDLE, 190),
    "running": Box(MIDDLE, 350),
    "succeeded": Box(MIDDLE, 470),
    "stalled": Box(RIGHT, 270),
    "failed": Box(RIGHT, 470),
    "cancelled": Box(55, 210, height=320),
    "dead_lettered": Box(575, 210, width=126, height=320),
}
ROUTES = {
    ("[*]", "queued"): "225,14 225,50",
    ("queued", "claimed"): "225,90 225,170",
    ("queued", "cancelled"): "172,70 108,70",
    ("queued", "dead_lettered"): "278,62 512,62",
    ("claimed", "running"): "225,210 225,330",
    ("claimed", "stalled"): "278,200 352,250",
    ("claimed", "cancelled"): "172,190 108,190",
    ("claimed", "dead_lettered"): "278,182 512,182",
    ("running", "stalled"): "278,340 352,290",
    ("running", "succeeded"): "225,370 225,450",
    ("running", "failed"): "278,362 360,450",
    ("running", "cancelled"): "172,350 108,350",
    ("running", "dead_lettered"): "278,350 512,350",
    ("stalled", "queued"): "410,250 410,80 278,80",
    ("stalled", "claimed"): "342,262 262,210",
    ("stalled", "running"): "342,278 262,330",
    ("stalled", "failed"): "410,290 410,450",
    ("stalled", "cancelled"): "342,270 108,270",
    ("stalled", "dead_lettered"): "448,270 512,270",
}
"""The points of each arrow. A change of status that has none cannot be drawn."""
WORDS = {
    ("[*]", "queued"): (235, 36, "start"),
    ("claimed", "running"): (219, 242, "end"),
    ("stalled", "queued"): (402, 100, "end"),
    ("stalled", "running"): (298, 304, "end"),
}
"""Where the word of an arrow stands. The other arrows have the word of the box that they lead to."""

_STEP = re.compile(r"^ +(\S+) --> (\S+?)(?:: (.*))?$", re.MULTILINE)


def drawing(mermaid: str) -> str:
    """The diagram as a block of HTML. Raise ValueError if it has a status or an arrow without a place."""
    header, _, steps = mermaid.partition("\n")
    found = {(source, target): word for source, target, word in _STEP.findall(steps)}
    ends = {source for source, target in found if target == "[*]"}
    arrows = {step: word for step, word in found.items() if step[1] != "[*]"}
    wrong = [step for step, word in arrows.items() if step not in ROUTES or (step not in WORDS and word != step[1])]
    if header != "stateDiagram-v2" or wrong or len(found) != len(steps.splitlines()):
        raise ValueError(f"there is no drawing for {header} {wrong}: add the places to tools/state_diagram.py")
    names = {name for step in arrows for name in step} - {"[*]"}
    parts = [
        *(f'<polyline points="{ROUTES[step]}" marker-end="url(#arrow)"/>' for step in arrows),
        *(_word(*WORDS[step], word) for step, word in arrows.items() if step in WORDS),
        *(_box(BOXES[name], name, "end" if name in ends else "live") for name in BOXES if name in names),
    ]
    label = "; ".join(f"{source} to {target}: {word}" for (source, target), word in arrows.items()).replace("[*]", "start")
    return "\n".join(
        [
            '<figure class="state-diagram">',
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">',
            '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
            '<path d="M0 0 8 4 0 8z"/>',
            "</marker>",
            '<circle cx="225" cy="8" r="6"/>',
            *parts,
            "</svg>",
            "<figcaption>Bold frames are ends. An arrow without a word has the event of its target's name.</figcaption>",
            "</figure>",
        ]
    )


def _box(box: Box, name: str, kind: str) -> str:
    corner = f'x="{box.x - box.width // 2}" y="{box.y - box.height // 2}"'
    text = f'<text x="{box.x}" y="{box.y + 6}" text-anchor="middle">{name}</text>'
    return f'<rect class="{kind}" {corner} width="{box.width}" height="{box.height}" rx="6"/>{text}'


def _word(x: int, y: int, anchor: str, word: str) -> str:
    return f'<text class="event" x="{x}" y="{y}" text-anchor="{anchor}">{word}</text>'
