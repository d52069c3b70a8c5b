"""The planted bugs fit the code, and the tool that plants them says which are found."""

from pathlib import Path

import pytest

from tools.planted import BUGS, ROOT, Bug, Copies, main, planted, read_bugs, run_tests, why_unusable

SUM = Bug("sum", "Sums are wrong.", "src/sums.py", "a + b", "a - b", ("tests/test_sums.py",), keyword="")
HANG = Bug("hang", "It hangs.", "src/sums.py", "SECONDS = 0", "SECONDS = 600", SUM.tests, keyword="", found="timeout")
PRODUCT = Bug("product", "Products are wrong.", "src/sums.py", "a * b", "a * b * 1.0", SUM.tests, keyword="", found="nothing")
CODE = """
import time
SECONDS = 0
def add(a, b):
    time.sleep(SECONDS)
    return a + b
def product(a, b):
    return a * b
"""
TESTS = (
    "import sums\ndef test_a_sum():\n    assert sums.add(2, 2) == 4\ndef test_a_product():\n    assert sums.product(2, 3) == 6\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {SUM.file: CODE, SUM.tests[0]: TESTS}.items():
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return tmp_path / "tree"


def record(tree: Path, *bugs: Bug) -> None:
    lines = []
    for bug in bugs:
        texts = {name: getattr(bug, name) for name in ("name", "loses", "file", "old", "new", "keyword", "found")}
        lines += ["[[bug]]", *(f"{name} = '{text}'" for name, text in texts.items()), f"tests = {list(bug.tests)}"]
    (tree / BUGS).parent.mkdir()
    (tree / BUGS).write_text("\n".join(lines))


def test_every_recorded_bug_can_be_planted() -> None:
    """A bug whose code has moved has to be moved with it, in tests/planted/bugs.toml."""
    bugs = read_bugs(ROOT / BUGS)
    assert {bug.name: why for bug in bugs if (why := why_unusable(bug, ROOT)) is not None} == {}
    assert len(bugs) >= 60


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"old": "a / b"}, "0 times in src/sums.py"),
        ({"old": "(a, b)"}, "2 times in src/sums.py"),
        ({"file": "src/gone.py"}, "0 times in src/gone.py"),
        ({"tests": ("tests/test_gone.py",)}, "there is no tests/test_gone.py"),
        ({"tests": ()}, "no test is named"),
        ({"new": "a + b"}, "the new text is the old one"),
        ({"new": "a +"}, "not Python"),
    ],
)
def test_a_bug_that_cannot_be_planted_is_named(tree: Path, changed: dict[str, object], why: str) -> None:
    fields = {name: getattr(SUM, name) for name in SUM.__struct_fields__} | changed
    assert why in (why_unusable(Bug(**fields), tree) or "")
    assert why_unusable(SUM, tree) is None


def test_two_bugs_of_one_name_are_refused(tree: Path) -> None:
    record(tree, SUM, SUM)
    with pytest.raises(ValueError, match="several bugs have the name sum"):
        read_bugs(tree / BUGS)


def test_a_bug_is_in_the_copy_only_and_only_for_its_turn(tree: Path, tmp_path: Path) -> None:
    copies = Copies(tree, tmp_path / "copies", 1)
    outcome = copies.try_bug(SUM, 60)
    assert (outcome.found, outcome.by) == ("failure", "tests/test_sums.py::test_a_sum")
    copied = tmp_path / "copies" / "0"
    assert (tree / SUM.file).read_text() == (copied / SUM.file).read_text() == CODE
    assert copies.try_bug(PRODUCT, 60).found == "nothing"
    with planted([SUM, PRODUCT], copied):
        assert (copied / SUM.file).read_text() == CODE.replace("a + b", "a - b").replace("a * b", "a * b * 1.0")


def test_tests_that_hang_are_ended(tree: Path) -> None:
    with planted([HANG], tree):
        assert run_tests(tree, HANG.tests, "", 3).found == "timeout"


def test_a_keyword_that_selects_no_test_is_an_error(tree: Path) -> None:
    with pytest.raises(ValueError, match="no test is selected"):
        run_tests(tree, SUM.tests, "postgres", 60)


def test_the_command_says_what_is_found(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tree, SUM, PRODUCT)
    assert main([], tree) == 0
    printed = capsys.readouterr().out
    assert "found by tests/test_sums.py::test_a_sum" in printed
    assert "1 of 2 planted bugs are found; 0 are no longer found" in printed
    with pytest.raises(SystemExit):
        main(["unknown"], tree)


def test_a_bug_that_is_no_longer_found_fails_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / SUM.tests[0]).write_text(TESTS.replace("sums.add(2, 2)", "4"))
    record(tree, SUM, PRODUCT)
    assert main(["sum"], tree) == 1
    assert "0 of 1 planted bugs are found; 1 are no longer found" in capsys.readouterr().out


def test_a_test_that_fails_without_a_bug_fails_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / SUM.tests[0]).write_text(TESTS.replace("== 4", "== 5"))
    record(tree, SUM)
    assert main([], tree) == 1
    assert "without a bug, a test fails: tests/test_sums.py::test_a_sum" in capsys.readouterr().out


def test_a_bug_that_cannot_be_planted_fails_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / SUM.file).write_text("")
    record(tree, SUM)
    assert main([], tree) == 1
    assert "sum: the old text is 0 times in src/sums.py" in capsys.readouterr().out
