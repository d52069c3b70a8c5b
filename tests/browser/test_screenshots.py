"""Pictures for the README. They are compared by eye. `HOLDFAST_PICTURES=1` writes them to docs/img."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.browser.sample import busy_hour, fill
from tests.support.server import RunningServer

FOLDER = Path(__file__).parents[2] / "docs" / "img"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overview", "job"])
def test_a_picture(served: RunningServer, clock: ManualClock, open_page: Open, tmp_path: Path, theme: str, name: str) -> None:
    busy_hour(served.ledger, clock)
    fill(served.ledger, clock)
    job_id = served.ledger.list(kind="index_page")[0].id
    page = open_page(
        "/" if name == "overview" else f"/jobs/{job_id}", color_scheme=theme, viewport={"width": 1280, "height": 800}
    )
    expect(page.locator("svg.chart, .timeline svg[role=img]").first).to_be_visible()
    folder = FOLDER if os.environ.get("HOLDFAST_PICTURES") else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"dashboard-{name}-{theme}.png"

    page.screenshot(path=picture)

    assert picture.stat().st_size > 10_000
