"""Finds Chromium, and says how to get it."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW = (
    "There is no Chromium. On Debian: apt-get install -y --no-install-recommends chromium fonts-dejavu-core. "
    "Or set HOLDFAST_CHROMIUM to the path of one."
)


def find_chromium() -> str | None:
    """Return the path of a Chromium. None if there is none."""
    given = os.environ.get("HOLDFAST_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name)) is not None), None)
