"""Generated parts of pages match the code."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from docs import generate
from docs.generate import METRIC_FAMILIES, ROOT, pages
from holdfast import Ledger, errors, liveness
from holdfast.core import limits, policy, vocabulary
from holdfast.core.model import EventType, FailureStage, Phase, ReasonCode, StallReason, Status
from holdfast.watch import families
from tests.docs.pages import problems


def text(page: str) -> str:
    return (ROOT / page).read_text()


def rows(page: str, part: str) -> list[list[str]]:
    """The rows of a generated table, as their readers see them."""
    found = re.search(rf"<!-- generated: {part} -->\n(.*?)\n<!-- end -->", text(page), re.DOTALL)
    assert found
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()[2:]]


def test_generated_parts_are_up_to_date() -> None:
    changed = [str(page) for page in pages() if page.read_text() != generate.insert(page.read_text())]
    assert changed == [], "run `make docs`"


def test_generating_updates_an_outdated_page() -> None:
    page = text("docs/reference/errors.md")
    assert generate.insert(page.replace("`fence_lost` | `FenceLost`", "`fence_gone` | `FenceLost`")) == page


def test_every_mark_is_known_and_closed() -> None:
    def wrong(page: Path) -> list[str]:
        marks = re.findall(r"<!-- generated: (.*?) -->", page.read_text())
        unknown = [mark for mark in marks if mark not in {*generate.PARTS, "table", "diagram"}]
        return unknown if len(marks) == page.read_text().count("<!-- end -->") else [*unknown, "a mark is not closed"]

    assert problems(wrong, pages()) == []


def test_table_rows_have_all_columns() -> None:
    """Markdown silently pads or drops cells if a row is too short or too long."""

    def wrong(page: Path) -> list[str]:
        tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text())
        lines = page.read_text().splitlines()
        tables = [lines[slice(*token.map)] for token in tokens if token.type == "table_open" and token.map]
        return [table[0] for table in tables if len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) != 1]

    assert problems(wrong, pages()) == []


def test_every_verb_has_its_heading() -> None:
    verbs = {verb for verb, _ in inspect.getmembers(Ledger, inspect.isfunction) if not verb.startswith("_")}
    assert set(re.findall(r"^### (\w+)$", text("docs/reference/api.md"), re.MULTILINE)) == verbs


def test_every_error_code_is_in_the_table() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)]
    expected = {kind.code: kind for kind in classes if kind is not errors.HoldfastError}
    found = {row[0].strip("`"): row for row in rows("docs/reference/errors.md", "errors")}
    assert found.keys() == expected.keys()
    for code, kind in expected.items():
        assert found[code][1:5] == [
            f"`{kind.__name__}`", "may succeed" if kind.retryable else "no", kind.fault, str(kind.http_status)
        ]  # fmt: skip


def test_every_limit_is_in_the_table() -> None:
    numbers = {key: value for key, value in vars(limits).items() if key.isupper() and isinstance(value, int)}
    found = {row[2].strip("`"): int(row[1].replace(",", "")) for row in rows("docs/reference/limits.md", "limits")}
    assert found == numbers


def test_every_limit_of_the_gate_is_in_the_table() -> None:
    numbers = {name: getattr(liveness, name) for name in liveness.__all__ if name.startswith("MAX_")}
    found = {row[2].strip("`"): int(row[1].replace(",", "")) for row in rows("docs/reference/limits.md", "liveness")}
    assert found == numbers


def test_every_policy_field_is_in_the_table() -> None:
    found = [row[0].strip("`") for row in rows("docs/reference/limits.md", "policy")]
    settings = {field.name.removesuffix("_ms") for field in msgspec.structs.fields(policy.Settings)}
    assert set(found) == settings
    assert len(found) == len(settings)


@pytest.mark.parametrize("field", sorted(policy._DURATIONS))
def test_the_bounds_of_a_duration_are_those_of_the_page(field: str) -> None:
    [row] = [row for row in rows("docs/reference/limits.md", "policy") if row[0] == f"`{field}`"]
    low, high = (milliseconds(side) for side in row[2].split(" – "))
    wide = {"lease_widened": True} if field == "lease_ttl" else {}
    for ms in (low, high):
        assert getattr(policy.read_settings({field: ms / 1_000, **wide}), f"{field}_ms") == ms
    for ms in (low - 1, high + 1):
        with pytest.raises(errors.LimitExceeded):
            policy.read_settings({field: ms / 1_000, **wide})


def milliseconds(shown: str) -> int:
    number, _, unit = shown.partition(" ")
    return int(number) * {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]


def test_every_name_of_every_dialect_is_in_the_table() -> None:
    known = {
        *((dialect, "event type", name) for dialect, names in vocabulary.DIALECTS.items() for name, _ in names.events),
        *((dialect, "status", name) for dialect, names in vocabulary.DIALECTS.items() for name, _, _ in names.statuses),
        *((dialect, "reason", name) for dialect, names in vocabulary.DIALECTS.items() for name, _ in names.reasons),
    }
    found = rows("docs/reference/events.md", "aliases")
    assert {(dialect.strip("`"), of, alias.strip("`")) for dialect, of, alias, _, _ in found} == known
    assert [alias for _, _, alias, _, written in found if written != "yes"] == ["`job_lease_renewed`"]


def test_every_metric_is_in_the_table() -> None:
    found = [row[0].strip("`") for row in rows("docs/guides/observability.md", "metrics")]
    names = [value for key, value in vars(families).items() if key.isupper() and isinstance(value, str)]
    assert set(names) <= set(found)
    assert len(found) == len(set(found)) == len(METRIC_FAMILIES)


def test_every_event_type_is_in_the_table() -> None:
    assert [row[0] for row in rows("docs/reference/events.md", "events")] == [f"`{kind.value}`" for kind in EventType]


@pytest.mark.parametrize("kind", [Status, Phase, StallReason, FailureStage])
def test_the_lifecycle_names_every(kind: type[Status | Phase | StallReason | FailureStage]) -> None:
    page = text("docs/reference/lifecycle.md")
    assert [member.value for member in kind if member.value not in page] == []


def test_the_reasons_of_dead_letters_are_those_of_the_verb() -> None:
    page = text("docs/reference/lifecycle.md") + text("docs/reference/errors.md") + text("docs/reference/api.md")
    assert [code.value for code in ReasonCode if f"`{code.value}`" not in page] == []


def test_the_figures_of_pages_are_those_that_were_measured() -> None:
    """One number answers a question, on each page that names it: what one worker process does on two cores."""
    measured = text("bench/README.md").partition("## One worker process")[2].partition("\n## ")[0]
    for page in ("README.md", "docs/guides/fleet.md"):
        [sentence] = [line for line in text(page).splitlines() if line.startswith("One worker process")]
        found = re.findall(r"about (\d[\d,]*)", sentence)
        assert len(found) == 2, page
        assert [figure for figure in found if f"about {figure} |" not in measured] == [], page


def test_the_readme_is_short() -> None:
    assert len(text("README.md").splitlines()) < 135
