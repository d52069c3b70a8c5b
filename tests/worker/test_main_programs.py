"""Handlers for child processes in the main program, started in different ways."""

import subprocess
import sys
from pathlib import Path

import pytest

HANDLER = """
import holdfast
app = holdfast.App("sqlite:///jobs.db")

@app.handler(isolation="process", attempts_max=1)
def add(n: int) -> int:
    return n + MORE
"""
WORK = """
with app.worker() as worker:
    worker.start()
    found = app.ledger.wait(app.enqueue(add, n=1).id, timeout=60)
    print(found.status, found.result, (found.last_error or {}).get("message"))
"""


def said(folder: Path, *arguments: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, done.stderr


def guarded(text: str) -> str:
    return "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in text.splitlines())


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "prices.py").write_text("MORE = 5\n")
    (folder / "tasks.py").write_text("from .prices import MORE\n" + HANDLER + guarded(WORK))
    return tmp_path


def test_a_handler_in_a_module_of_a_package_runs(package: Path) -> None:
    assert said(package, "-m", "shop.tasks")[0] == "succeeded 6 None\n"


def test_a_handler_in_a_script_runs(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("MORE = 5\n" + HANDLER + guarded(WORK))
    assert said(tmp_path, "tasks.py")[0] == "succeeded 6 None\n"


def test_a_job_of_a_script_that_starts_its_worker_on_import_is_dead_lettered(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("MORE = 5\n" + HANDLER + WORK)
    out, _ = said(tmp_path, "tasks.py")
    assert out.startswith("dead_lettered None")
    assert "under `if __name__ == '__main__':`" in out
    assert len(out.splitlines()) == 1


def test_a_handler_that_is_not_in_a_file_is_refused(tmp_path: Path) -> None:
    out, errors = said(tmp_path, "-c", HANDLER)
    assert out == ""
    assert "must be in a file" in errors
