"""Tiles give the same roots and proofs as the whole tree."""

from collections.abc import Iterable

import pytest

from holdfast.errors import ValidationError
from holdfast.proof import merkle, tiles
from holdfast.proof.merkle import verify_inclusion
from tests.unit.proof.trees import numbered

HASHES = numbered(256 * 256 + 700)
SIZES = [
    1,
    2,
    255,
    256,
    257,
    511,
    512,
    700,
    256 * 7 + 3,
    256 * 255 + 255,
    256 * 256 - 1,
    256 * 256,
    256 * 256 + 1,
    256 * 256 + 700,
]


class Kept:
    """Tiles in memory that grow in steps. Counts the reads."""

    def __init__(self, steps: Iterable[int]) -> None:
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.readings, self.size = 0, 0
        for size in steps:
            self.grow(size)

    def grow(self, size: int) -> None:
        for level, number, body in tiles.grow_tiles(self.read, self.size, HASHES[self.size : size]):
            self.bodies[level, number] = body
        self.size = size

    def read(self, level: int, number: int) -> bytes:
        self.readings += 1
        return self.bodies[level, number]


@pytest.fixture(scope="module")
def kept() -> Kept:
    return Kept([0, *SIZES])


@pytest.fixture(scope="module")
def roots() -> dict[int, bytes]:
    return {size: merkle.root_of(HASHES[:size]) for size in SIZES}


def test_tiles_do_not_depend_on_the_steps_of_growth(kept: Kept):
    assert Kept([len(HASHES)]).bodies == kept.bodies
    assert {level for level, _ in kept.bodies} == {0, 1, 2}
    assert kept.bodies[0, 1] == b"".join(HASHES[256:512])
    assert kept.bodies[1, 0][32:64] == merkle.root_of(HASHES[256:512])


@pytest.mark.parametrize("size", [0, *SIZES])
def test_a_frontier_is_read_from_tiles(kept: Kept, size: int):
    whole = merkle.Frontier()
    whole.append(HASHES[:size])
    found = tiles.frontier(kept.read, size)
    assert (found.size, found.peaks) == (whole.size, whole.peaks)


@pytest.mark.parametrize("size", SIZES)
def test_proofs_are_read_from_tiles(kept: Kept, roots: dict[int, bytes], size: int):
    for index in {0, size // 3, size // 2, size - 1, min(255, size - 1), min(256, size - 1)}:
        kept.readings = 0
        proof = tiles.inclusion_proof(kept.read, index, size)
        assert kept.readings <= 7
        assert verify_inclusion(HASHES[index], index, size, proof, roots[size])


def test_an_incomplete_tile_is_refused(kept: Kept):
    with pytest.raises(ValidationError, match="tile 0 of level 0 has fewer than"):
        tiles.frontier(lambda level, number: kept.bodies[level, number][: 200 * 32], 255)
