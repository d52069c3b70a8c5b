"""The hues of statuses, recomputed from the style sheet: contrast, and difference to every kind of colour vision."""

import re
from itertools import combinations

import pytest

from holdfast.server.pages import FOLDER

CONTRAST_MIN, DIFFERENCE_MIN = 3.0, 27.0
GROUNDS = {"light": ("#FFFFFF", "#F5F6F8"), "dark": ("#12161B", "#1A2027")}
SEEN = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Matrices of Machado, Oliveira and Fernandes for full severity, on linear light."""
Triple = tuple[float, float, float]


def linear(colour: str) -> Triple:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(light: Triple) -> Triple:
    red, green, blue = (min(1.0, max(0.0, part)) for part in light)
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    f, g, h = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * g - 16, 500 * (f - g), 200 * (g - h)


def seen(colour: str, eyes: str) -> Triple:
    light = linear(colour)
    first, second, third = (sum(a * b for a, b in zip(row, light, strict=True)) for row in SEEN[eyes])
    return lab((first, second, third))


def hues(theme: str) -> dict[str, str]:
    text = (FOLDER / "css" / "status.css").read_text()
    block = text[text.index(":root.dark") :] if theme == "dark" else text
    return dict(re.findall(r"--(\w+): (#[0-9A-Fa-f]{6});", block[: block.index("}")]))


@pytest.mark.parametrize("theme", GROUNDS)
def test_hues_can_be_seen_on_their_grounds(theme: str) -> None:
    assert len(hues(theme)) == 8
    found = {(name, ground): round(contrast(hue, ground), 2) for name, hue in hues(theme).items() for ground in GROUNDS[theme]}
    assert len(found) == 8 * len(GROUNDS[theme])
    assert {pair: value for pair, value in found.items() if value < CONTRAST_MIN} == {}


@pytest.mark.parametrize("theme", GROUNDS)
def test_texts_can_be_read_on_their_grounds(theme: str) -> None:
    text = (FOLDER / "css" / "base.css").read_text()
    block = text[text.index(":root.dark") :] if theme == "dark" else text
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9A-Fa-f]{6});", block[: block.index("}")]))
    assert (colours["bg"], colours["surface"]) == GROUNDS[theme]
    grounds = [colours[name] for name in ("bg", "surface", "tint", "code")]
    low = [(name, ground) for name in ("text", "muted", "link") for ground in grounds if contrast(colours[name], ground) < 4.5]
    assert low == []
    assert contrast(colours["on-danger"], colours["danger"]) >= 4.5
    assert min(contrast(colours["border"], ground) for ground in GROUNDS[theme]) >= CONTRAST_MIN


def test_the_measures_are_those_of_the_standards() -> None:
    assert round(contrast("#000000", "#FFFFFF"), 2) == 21.0
    assert round(contrast("#777777", "#FFFFFF"), 2) == 4.48
    assert [round(part) for part in seen("#FF0000", "normal")] == [53, 80, 67]


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("theme", GROUNDS)
def test_hues_differ_to_all_eyes(theme: str, eyes: str) -> None:
    close = []
    for one, other in combinations(sorted(set(hues(theme).values())), 2):
        difference = sum((a - b) ** 2 for a, b in zip(seen(one, eyes), seen(other, eyes), strict=True)) ** 0.5
        if difference < DIFFERENCE_MIN:
            close.append((one, other, round(difference, 1)))
    assert close == []


def test_the_system_theme_has_the_same_hues_as_the_dark_one() -> None:
    text = (FOLDER / "css" / "status.css").read_text()
    block = text[text.index(":root:not(.light)") :]
    system = dict(re.findall(r"--(\w+): (#[0-9A-Fa-f]{6});", block[: block.index("}")]))
    assert system == hues("dark")
