"""The wheel and the sdist of this checkout, which every process of the tests builds once."""

from pathlib import Path

import pytest

from tests.packaging.building import build
from tests.support.processes import ROOT


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    [found] = built.glob("*.tar.gz")
    return found
