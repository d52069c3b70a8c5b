"""`make planted`: plant recorded bugs in copies of the tree, one at a time, and check that the tests still find them.

    python -m tools.planted                     all bugs
    python -m tools.planted NAME [NAME…]        these bugs
    python -m tools.planted --processes 4       four bugs at a time

`tests/planted/bugs.toml` has the bugs: the text that each one replaces, and the tests that find it. The tests of bugs that are
found are first run without a bug, and have to pass. The exit code is 1 if a bug that is recorded as found is no longer found.
"""

import argparse
import ast
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

ROOT = Path(__file__).parent.parent
BUGS = Path("tests/planted/bugs.toml")
SECONDS = 300.0
"""How long the tests of one bug may take. Most take seconds, the longest 72 s alone, so after this time they hang."""
SOUND_SECONDS = 1_800.0
"""How long the tests of all bugs together may take without a bug."""
END_SECONDS = 15.0
"""How long tests that hang may take to end after an interrupt. Then they are killed."""
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "htmlcov", "*.db*")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
NO_TESTS = 5
"""The exit code of pytest if no test was selected."""

Found = Literal["failure", "timeout", "nothing"]


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small patch, as an engineer could make it by mistake."""

    name: str
    loses: str
    """What a user would lose, in one sentence."""
    file: str
    old: str
    """A text that is in the file once."""
    new: str
    tests: tuple[str, ...]
    """The test files that find the bug. If nothing finds it, those that are nearest to it."""
    keyword: str = "not postgres"
    """The tests of these files that are run, as for `pytest -k`."""
    found: Found = "failure"
    """`timeout`: the tests hang. `nothing`: no test finds the bug yet."""


class Outcome(NamedTuple):
    """What the tests did with a bug. `by` is the first test that failed."""

    found: Found
    seconds: float
    by: str = ""


def read_bugs(path: Path) -> list[Bug]:
    """Return the recorded bugs. Raise ValueError if two have one name."""
    bugs = msgspec.convert(tomllib.loads(path.read_text())["bug"], list[Bug])
    names = [bug.name for bug in bugs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"several bugs have the name {', '.join(sorted(twice))}")
    return bugs


def why_unusable(bug: Bug, root: Path) -> str | None:
    """Return why a bug cannot be planted in this tree. None if it can be."""
    file = root / bug.file
    count = file.read_text().count(bug.old) if file.is_file() else 0
    if count != 1:
        return f"the old text is {count} times in {bug.file}: it has to be there once"
    if missing := [test for test in bug.tests if not (root / test).exists()]:
        return f"there is no {missing[0]}"
    if not bug.tests:
        return "no test is named"
    if bug.new == bug.old:
        return "the new text is the old one"
    if file.suffix == ".py":
        try:
            ast.parse(file.read_text().replace(bug.old, bug.new))
        except SyntaxError as error:
            return f"the new text is not Python: {error}"
    return None


def copy_tree(root: Path, target: Path) -> Path:
    """Copy what tests need of a checkout, without what is hidden or made by programs."""
    return Path(shutil.copytree(root, target, ignore=_LEFT_OUT, symlinks=True))


@contextlib.contextmanager
def planted(bugs: Sequence[Bug], tree: Path) -> Iterator[None]:
    """Plant bugs in a copy until the block ends."""
    before = {tree / bug.file: (tree / bug.file).read_text() for bug in bugs}
    try:
        for bug in bugs:
            file = tree / bug.file
            _write(file, file.read_text().replace(bug.old, bug.new))
        yield
    finally:
        for file, text in before.items():
            _write(file, text)


def _write(file: Path, text: str) -> None:
    """Write a file, and delete its bytecode: a file that changes twice in a second may look the same to Python."""
    file.write_text(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def run_tests(tree: Path, tests: Iterable[str], keyword: str, seconds: float, *more: str) -> Outcome:
    """Run tests in a tree until the first failure. Raise ValueError if the keyword selects none."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(tree / "src"), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "0"]
    command += ["-m", "not torture and not browser and not promtool", *(("-k", keyword) if keyword else ()), *more, *tests]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome("timeout", time.monotonic() - began)
        except BaseException:
            _end(process)
            raise
        output.seek(0)
        text = output.read()
    if process.returncode == NO_TESTS:
        raise ValueError(f"no test is selected by {keyword!r}")
    failed = _FAILED.search(text)
    by = failed[1] if failed is not None else text.strip().rpartition("\n")[2]
    return Outcome("failure" if process.returncode else "nothing", time.monotonic() - began, by if process.returncode else "")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt tests, so that they stop the servers that they have started. Kill them if that takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Copies:
    """Copies of a tree, one for each bug that is tried at a time."""

    def __init__(self, root: Path, home: Path, processes: int) -> None:
        self._processes = processes
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(processes):
            self._free.put(copy_tree(root, home / str(number)))

    def check_sound(self, bugs: Sequence[Bug]) -> str | None:
        """Run the tests of these bugs without a bug. Return the test that fails, or None."""
        tree = self._free.get()
        recorded = [bug for bug in bugs if bug.found != "nothing"]
        try:
            for keyword in sorted({bug.keyword for bug in recorded}):
                tests = sorted({test for bug in recorded if bug.keyword == keyword for test in bug.tests})
                found = run_tests(tree, tests, keyword, SOUND_SECONDS, *_spread(self._processes))
                if found.found != "nothing":
                    return found.by or "it hangs"
        finally:
            self._free.put(tree)
        return None

    def try_bug(self, bug: Bug, seconds: float) -> Outcome:
        """Plant a bug in a copy that is free, and run its tests."""
        tree = self._free.get()
        try:
            with planted([bug], tree):
                return run_tests(tree, bug.tests, bug.keyword, seconds)
        finally:
            self._free.put(tree)


def _spread(processes: int) -> Sequence[str]:
    return ("-n", str(processes), "--dist", "worksteal") if processes > 1 else ()


def describe(bug: Bug, outcome: Outcome) -> str:
    """Return one line about a bug: whether it is found as recorded, and by which test."""
    mark = "ok " if outcome.found == bug.found else "NEW" if bug.found == "nothing" else "BAD"
    text = {"failure": f"found by {outcome.by}", "timeout": "found: its tests hang", "nothing": "not found"}[outcome.found]
    recorded = "" if outcome.found == bug.found else f" (recorded: {bug.found})"
    return f"{mark} {bug.name:<44} {outcome.seconds:5.1f} s  {text}{recorded}"


def is_worse(bug: Bug, outcome: Outcome) -> bool:
    """Return whether a bug is no longer found as it is recorded."""
    return bug.found not in ("nothing", outcome.found)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to plant; all of them by default")
    parser.add_argument("--processes", type=int, default=1, help="bugs that are tried at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the tests of one bug may take")
    asked = parser.parse_args(arguments)
    bugs = read_bugs(root / BUGS)
    if unknown := set(asked.names) - {bug.name for bug in bugs}:
        parser.error(f"there is no bug {', '.join(sorted(unknown))}")
    bugs = [bug for bug in bugs if not asked.names or bug.name in asked.names]
    if unusable := {bug.name: why for bug in bugs if (why := why_unusable(bug, root)) is not None}:
        print(*(f"{name}: {why}" for name, why in unusable.items()), sep="\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="holdfast-planted-") as home:
        copies = Copies(root, Path(home), asked.processes)
        if (failing := copies.check_sound(bugs)) is not None:
            print(f"without a bug, a test fails: {failing}")
            return 1
        outcomes = []
        with ThreadPoolExecutor(asked.processes) as pool:
            for bug, outcome in zip(bugs, pool.map(lambda bug: copies.try_bug(bug, asked.seconds), bugs), strict=True):
                print(describe(bug, outcome), flush=True)
                outcomes.append(outcome)
    worse = sum(map(is_worse, bugs, outcomes))
    found = sum(outcome.found != "nothing" for outcome in outcomes)
    print(f"{found} of {len(bugs)} planted bugs are found; {worse} are no longer found as they are recorded")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
