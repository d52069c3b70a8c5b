"""The check that the program makes when it starts: which folders of the path have another project's `holdfast`, and which not."""

import sys
from pathlib import Path

import pytest

import _holdfast_program
from tests.support.processes import ROOT

THEIRS = "Metadata-Version: 2.4\nName: holdfast\nVersion: 0.5.1\nSummary: Another project\n\n"
OURS = "Summary: A durable ledger of jobs on SQLite or PostgreSQL\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages, first on the path, with another project's package."""
    folder = tmp_path / "site-packages"
    (folder / "holdfast").mkdir(parents=True)
    (folder / "holdfast/__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def add_metadata(site: Path, text: str) -> Path:
    metadata = site / "holdfast-0.5.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(text)
    return metadata


@pytest.mark.parametrize("text", [THEIRS, f"{THEIRS}{OURS}", ""])
def test_the_distribution_of_another_project_is_found(site: Path, text: str) -> None:
    metadata = add_metadata(site, text)
    problem = _holdfast_program._find_problem()
    assert problem is not None and problem[2] == str(metadata.parent)
    remove, install = problem[1].split(" && ")
    assert remove == f"{sys.executable} -m pip uninstall -y holdfast"
    assert install == f"{sys.executable} -m pip install --force-reinstall --no-deps holdfast-ledger"


def test_this_distribution_under_its_old_name_is_none(site: Path) -> None:
    add_metadata(site, f"Metadata-Version: 2.5\nName: holdfast\nVersion: 0.1.0\n{OURS}License-Expression: Apache-2.0\n")
    assert _holdfast_program._find_distributions({str(site)}) == (None, None)


def test_the_rest_of_a_removed_distribution_is_none(site: Path) -> None:
    add_metadata(site, THEIRS).unlink()
    assert _holdfast_program._find_distributions({str(site)}) == (None, None)


def test_a_distribution_that_python_finds_later_is_none(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_metadata(site, THEIRS)
    monkeypatch.setattr(sys, "path", [*sys.path[1:], str(site)])
    assert _holdfast_program._find_problem() is None


def test_a_package_without_metadata_is_found(site: Path) -> None:
    problem = _holdfast_program._find_problem()
    assert problem is not None and problem[2] == str(site / "holdfast")
    (site / "holdfast/__init__.py").unlink()
    assert _holdfast_program._find_problem() is None, "Python takes a package before a folder without __init__.py"


@pytest.mark.parametrize("folder", ["", "link"])
def test_another_path_to_this_package_is_none(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path if folder else ROOT / "src")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), folder, *sys.path])
    assert _holdfast_program._find_problem() is None
