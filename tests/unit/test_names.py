"""Names in the source: one class, one name."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_text_speaks_of_people_without_a_name() -> None:
    """Docstrings, comments and messages say who acts: the caller, the worker, the holder, another process."""
    vague = re.compile(r"\b(somebody|nobody|anybody|whoever|whatever|befell)\b", re.IGNORECASE)
    sources = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.sql")]
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(sources)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if vague.search(line)
    ]
    assert len(sources) > 200
    assert found == []
