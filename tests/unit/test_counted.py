"""Numbers in sentences."""

import pytest

from holdfast.core.words import counted


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 leaves, 0 heads"), (1, "1 leaf, 1 head"), (2, "2 leaves, 2 heads"), (1_000, "1,000 leaves, 1,000 heads")],
)
def test_one_is_not_many(count: int, said: str):
    assert f"{counted(count, 'leaf', 'leaves')}, {counted(count, 'head')}" == said
