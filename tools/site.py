"""Build the docs as a site: `python -m tools.site FOLDER`, by the Python of an environment with Zensical. `make site` does this.

Pages keep their paths, so the links between them are the same on the site, on GitHub and in a checkout. What differs on the site
is added here: descriptions for search engines, drawings of the diagrams, and what `pyproject.toml` says about the project.
At last every page of the built site is checked.
"""

import html
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tools.built_site import problems
from tools.state_diagram import drawing

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs/zensical.toml"
PROJECT = ROOT / "pyproject.toml"
THEME = ROOT / "docs/theme"
"""What the site changes in the theme: templates, a style sheet, and files that pages load."""
MARK = ROOT / "src/holdfast/server/dashboard/favicon.svg"
PICTURES = ROOT / "docs/img"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md")
"""Pages that are not in docs. README.md becomes the first page."""

DESCRIPTION_MAX = 160
_TABLE = "[project]\n"
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_SPAN = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def pages() -> list[Path]:
    return [*(ROOT / path for path in OUTSIDE), *sorted((ROOT / "docs").rglob("*.md"))]


def project_urls(pyproject: Path = PROJECT) -> dict[str, str]:
    """`[project.urls]`: `Repository` and `Documentation` are there once they are public."""
    found: dict[str, str] = _project(pyproject).get("urls", {})
    return found


def _project(pyproject: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(pyproject.read_text())["project"]
    return found


def settings(pyproject: Path = PROJECT) -> dict[str, str]:
    """The settings of Zensical that follow from `pyproject.toml`. Its templates escape nothing."""
    project, urls = _project(pyproject), project_urls(pyproject)
    made = {"site_name": f"Holdfast {project['version']}", "site_description": html.escape(project["description"])}
    if documentation := urls.get("Documentation"):
        made["site_url"] = documentation.rstrip("/") + "/"
    if repository := urls.get("Repository"):
        made |= {"repo_url": repository, "repo_name": "/".join(repository.split("/")[3:]), "edit_uri": "edit/main/"}
    return made


def description(page: str) -> str:
    """The first paragraph of a page as plain text, cut after a word."""
    for paragraph in re.split(r"\n{2,}", _CODE.sub("", page)):
        if re.match(r"[\w`*\[]", paragraph):
            text = re.sub(r"[`*]", "", _LINK.sub(r"\1", " ".join(paragraph.split())))
            return text if len(text) <= DESCRIPTION_MAX else text[:DESCRIPTION_MAX].rpartition(" ")[0].rstrip(",;:") + " …"
    return ""


def for_site(page: str) -> str:
    """A page with its description as front matter, and with drawings in place of the source of diagrams."""
    head = f"---\ndescription: {json.dumps(html.escape(description(page)), ensure_ascii=False)}\n---\n\n"
    drawn = _DIAGRAM.sub(lambda found: drawing(found[1]), page)
    return head + _ROW.sub(lambda row: _SPAN.sub(_without_escapes, row[0]), drawn)


def _without_escapes(code: re.Match[str]) -> str:
    """Code in a table needs its bars escaped on GitHub, and shows the escapes on the site."""
    return code[0].replace(r"\|", "|")


def collect(folder: Path, pyproject: Path = PROJECT) -> None:
    """Put configuration, theme, pages and pictures into `folder`. Those of an earlier run are removed."""
    for name in ("pages", "theme"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for page in pages():
        copy = folder / "pages" / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(for_site(page.read_text()))
    shutil.copytree(PICTURES, folder / "pages" / PICTURES.relative_to(ROOT))
    shutil.copytree(THEME, folder / "theme")
    shutil.copyfile(MARK, folder / "pages/mark.svg")
    before, table, after = CONFIG.read_text().partition(_TABLE)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings(pyproject).items()]
    (folder / CONFIG.name).write_text(before + table + "".join(lines) + after)


def build(folder: Path, zensical: Path, pyproject: Path = PROJECT) -> int:
    """Build the site in `folder/site`, and check it. Return an exit code."""
    collect(folder, pyproject)
    if code := subprocess.run([zensical, "build", "--strict", "--clean"], cwd=folder, check=False).returncode:
        return code
    found = problems(folder / "site", project_urls(pyproject).get("Documentation", ""))
    sys.stderr.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]), Path(sys.executable).with_name("zensical")))
