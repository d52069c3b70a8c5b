"""Collect the pages of the site in a folder: `python -m tools.site FOLDER`. `make site` does this, then runs Zensical there.

Pages keep their paths, so the links between them are the same on the site, on GitHub and in a checkout.
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs/zensical.toml"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md")
"""Pages that are not in docs. README.md becomes the first page."""


def pages() -> list[Path]:
    return [*(ROOT / path for path in OUTSIDE), *sorted((ROOT / "docs").rglob("*.md"))]


def collect(folder: Path) -> None:
    """Copy the configuration and the pages. Pages of an earlier run are removed."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for page in pages():
        copy = folder / "pages" / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    shutil.copyfile(CONFIG, folder / CONFIG.name)


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
