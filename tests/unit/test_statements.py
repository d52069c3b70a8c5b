"""Statements: shared ones stand once, and parts are known."""

import re
from pathlib import Path

import pytest

import holdfast.store.statements
from holdfast.store.statements import statements

STORE = Path(holdfast.store.statements.__file__).parent
STORES = ("postgres", "sqlite")


def written(folder: Path, kind: str) -> dict[str, str]:
    """The texts of statements or parts in the files of a folder, by name."""
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        for title, text in re.findall(r"^-- (\w+: \w+)\n(.*?;)$", file.read_text(), re.MULTILINE | re.DOTALL):
            if title.startswith(f"{kind}: "):
                name = title.partition(": ")[2]
                assert name not in found, name
                found[name] = text
    return found


def neutral(text: str) -> str:
    """A statement in the words of the shared ones."""
    return " ".join(re.sub(r"%\((\w+)\)s", r":\1", text).replace("%%", "%").replace("holdfast_", "holdfast.").split())


def test_a_statement_that_is_the_same_on_both_stores_stands_once() -> None:
    shared, own = written(STORE / "sql", "name"), {store: written(STORE / store / "sql", "name") for store in STORES}
    assert not shared.keys() & (own["postgres"].keys() | own["sqlite"].keys())
    alike = own["postgres"].keys() & own["sqlite"].keys()
    assert {name for name in alike if neutral(own["postgres"][name]) == neutral(own["sqlite"][name])} == set()
    assert len(shared) >= 70


@pytest.mark.parametrize("store", STORES)
def test_every_part_is_known_and_used(store: str) -> None:
    files = [*(STORE / "sql").iterdir(), *(STORE / store / "sql").iterdir()]
    used = {name for file in files for name in re.findall(r"\{(\w+)\}", file.read_text())}
    shared, own = written(STORE / "sql", "part"), written(STORE / store / "sql", "part")
    assert not shared.keys() & own.keys()
    assert used == shared.keys() | own.keys()
    assert [name for name, text in statements(f"holdfast.store.{store}").items() if re.search(r"\{\w+\}", text)] == []


def test_both_stores_write_shared_statements_in_their_own_way() -> None:
    postgres, sqlite = (statements(f"holdfast.store.{store}")["find_run"] for store in STORES)
    assert postgres == "SELECT name, body, updated_at FROM holdfast.runs WHERE name = %(name)s"
    assert sqlite == "SELECT name, body, updated_at FROM holdfast_runs WHERE name = :name"
