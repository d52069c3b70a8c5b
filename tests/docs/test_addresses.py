"""The addresses of the repository and the documentation are in `[project.urls]`: metadata, site and README.md take them."""

import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.metadata.spec import DEFAULT_METADATA_VERSION, get_core_metadata_constructors
from hatchling.plugin.manager import PluginManager

from docs import generate
from tests.support.processes import ROOT
from tools.site import collect

REPOSITORY, DOCUMENTATION = "https://git.example/anchor/holdfast", "https://docs.example/holdfast"


@pytest.fixture
def pyproject(tmp_path: Path) -> Path:
    """That of this checkout with addresses that are made up."""
    before, table, after = (ROOT / "pyproject.toml").read_text().partition("[project.urls]\n")
    made = tmp_path / "pyproject.toml"
    rest = after[after.index("\n[") :]  # without the addresses that are there
    made.write_text(f'{before}{table}Repository = "{REPOSITORY}"\nDocumentation = "{DOCUMENTATION}"\n{rest}')
    return made


def test_the_site_takes_them(pyproject: Path, tmp_path: Path) -> None:
    """Pages keep their paths, so the link to edit a page is the repository, `edit_uri` and the path."""
    collect(tmp_path, pyproject)
    found = tomllib.loads((tmp_path / "zensical.toml").read_text())["project"]
    assert (found["repo_url"], found["repo_name"], found["edit_uri"]) == (REPOSITORY, "anchor/holdfast", "edit/main/")
    assert found["site_url"] == f"{DOCUMENTATION}/"


def test_the_metadata_takes_them(pyproject: Path) -> None:
    metadata: ProjectMetadata[PluginManager] = ProjectMetadata(str(ROOT), None, tomllib.loads(pyproject.read_text()))
    text = get_core_metadata_constructors()[DEFAULT_METADATA_VERSION](metadata)
    lines = [line for line in text.splitlines() if line.startswith("Project-URL: ")]
    assert lines == [f"Project-URL: Repository, {REPOSITORY}", f"Project-URL: Documentation, {DOCUMENTATION}"]


def test_the_readme_takes_them(pyproject: Path) -> None:
    assert "<!-- generated: addresses -->\n" in (ROOT / "README.md").read_text()
    assert generate.address_line(pyproject) == f"[Documentation]({DOCUMENTATION}) · [Repository]({REPOSITORY})"


def test_without_addresses_nothing_is_made_up(tmp_path: Path) -> None:
    bare = tmp_path / "pyproject.toml"
    bare.write_text('[project]\nversion = "1"\ndescription = "Jobs"\n[project.urls]\n')
    collect(tmp_path, bare)
    found = tomllib.loads((tmp_path / "zensical.toml").read_text())["project"]
    assert not found.keys() & {"repo_url", "repo_name", "edit_uri", "site_url"}
    assert generate.address_line(bare) == ""
