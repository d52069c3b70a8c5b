"""A tree that grows from head to head equals the tree that is built at once."""

import pytest

from holdfast.errors import ValidationError
from holdfast.proof import merkle
from holdfast.proof.tiles import GrowingTree
from tests.unit.proof.trees import numbered

HASHES = numbered(256 * 256 + 700)
STEPS = [1, 255, 256, 257, 700, 256 * 255, 256 * 256, 256 * 256 + 1, 256 * 256 + 700]


def _grown(kept: dict[tuple[int, int], bytes], growth: GrowingTree, size: int) -> None:
    for level, number, body in growth.add(HASHES[growth.size : size]):
        kept[level, number] = body


def test_every_head_has_the_root_of_its_leaves():
    kept: dict[tuple[int, int], bytes] = {}
    growth = GrowingTree(0, lambda level, number: kept[level, number])
    assert growth.root() == merkle.EMPTY_ROOT
    for size in STEPS:
        _grown(kept, growth, size)
        assert (growth.size, growth.root()) == (size, merkle.root_of(HASHES[:size]))


def test_a_tree_continues_from_stored_tiles():
    kept: dict[tuple[int, int], bytes] = {}
    for before, size in zip([0, *STEPS], STEPS, strict=False):
        growth = GrowingTree(before, lambda level, number: kept[level, number])
        _grown(kept, growth, size)
        assert growth.root() == merkle.root_of(HASHES[:size])


def test_hashes_beyond_the_size_of_a_tree_are_ignored():
    growth = GrowingTree(3, lambda level, number: b"".join(HASHES[:9]))
    assert growth.root() == merkle.root_of(HASHES[:3])


def test_an_incomplete_tile_is_refused():
    growth = GrowingTree(9, lambda level, number: b"".join(HASHES[:8]))
    with pytest.raises(ValidationError):
        growth.root()
