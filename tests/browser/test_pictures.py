"""The pictures of the README, made from a real run of the demo."""

from pathlib import Path

from playwright.sync_api import Browser

from tools.pictures import make_pictures, tabs_in_picture, tabs_of_dashboard


def test_the_pictures_are_made_from_a_demo(browser: Browser, tmp_path: Path) -> None:
    made = make_pictures(tmp_path, browser)

    pages = [f"dashboard-{name}-{theme}.png" for name in ("job", "overview") for theme in ("dark", "light")]
    assert sorted(path.name for path in made) == [*pages, "kill.svg"]
    for path in made:
        if path.suffix == ".png":
            assert path.stat().st_size > 10_000
            assert tabs_in_picture(path.read_bytes()) == tabs_of_dashboard()
