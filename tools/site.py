"""Collect the pages of the site in a folder: `python -m tools.site FOLDER`. `make site` does this, then runs Zensical there.

Pages keep their paths, so the links between them are the same on the site, on GitHub and in a checkout.
"""

import json
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs/zensical.toml"
PROJECT = ROOT / "pyproject.toml"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md")
"""Pages that are not in docs. README.md becomes the first page."""


def pages() -> list[Path]:
    return [*(ROOT / path for path in OUTSIDE), *sorted((ROOT / "docs").rglob("*.md"))]


def project_urls(pyproject: Path = PROJECT) -> dict[str, str]:
    """`[project.urls]`: `Repository` and `Documentation` are there once they are public."""
    found: dict[str, str] = tomllib.loads(pyproject.read_text())["project"].get("urls", {})
    return found


def settings(pyproject: Path = PROJECT) -> dict[str, str]:
    """The settings of Zensical that follow from the addresses: the canonical address, and the links to the repository."""
    urls, made = project_urls(pyproject), {}
    if documentation := urls.get("Documentation"):
        made["site_url"] = documentation.rstrip("/") + "/"
    if repository := urls.get("Repository"):
        made |= {"repo_url": repository, "repo_name": "/".join(repository.split("/")[3:]), "edit_uri": "edit/main/"}
    return made


def collect(folder: Path, pyproject: Path = PROJECT) -> None:
    """Copy the configuration and the pages. Pages of an earlier run are removed."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for page in pages():
        copy = folder / "pages" / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    before, table, after = CONFIG.read_text().partition("[project]\n")
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings(pyproject).items()]
    (folder / CONFIG.name).write_text(before + table + "".join(lines) + after)


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
