"""The ledger of an app without a url."""

from pathlib import Path

import pytest

from holdfast import App, ValidationError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    return tmp_path


def test_an_app_without_a_url_uses_the_ledger_of_the_commands(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert App().url == "sqlite:///holdfast.db"
    (elsewhere / "holdfast.toml").write_text('url = "sqlite:///settings.db"')
    assert App().url == "sqlite:///settings.db"
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///environment.db")
    assert App().url == "sqlite:///environment.db"
    assert App("sqlite:///own.db").url == "sqlite:///own.db"


def test_wrong_settings_are_refused(elsewhere: Path) -> None:
    (elsewhere / "holdfast.toml").write_text('ulr = "sqlite:///settings.db"')
    with pytest.raises(ValidationError, match=r"holdfast\.toml has no setting 'ulr'"):
        App()
