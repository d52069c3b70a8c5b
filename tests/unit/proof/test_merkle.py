"""The tree: published vectors, its definition, and forgeries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.proof.merkle import (
    SIZE_MAX,
    Frontier,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_inclusion,
)
from tests.unit.proof.trees import (
    INCLUSIONS,
    LEAVES,
    ROOTS,
    numbered,
    plain_path,
    plain_root,
    span_of,
    unhex,
)

PUBLISHED = [leaf_hash(leaf) for leaf in LEAVES]
HASHES = numbered(70)


@pytest.mark.parametrize("size", range(9))
def test_published_roots_are_reproduced(size: int):
    assert root_of(PUBLISHED[:size]).hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "proof"), INCLUSIONS.items(), ids=str)
def test_published_inclusion_proofs_are_reproduced(place: tuple[int, int], proof: list[str]):
    index, size = place
    assert inclusion_proof(index, size, span_of(PUBLISHED)) == unhex(proof)
    assert verify_inclusion(PUBLISHED[index], index, size, unhex(proof), bytes.fromhex(ROOTS[size]))


def test_every_small_tree_matches_the_definition():
    for size in range(1, 34):
        hashes, root = HASHES[:size], plain_root(HASHES[:size])
        assert root_of(hashes) == root
        for index in range(size):
            path = inclusion_proof(index, size, span_of(HASHES))
            assert path == plain_path(index, hashes)
            assert verify_inclusion(hashes[index], index, size, path, root)


@given(st.lists(st.integers(0, 20), max_size=6))
def test_a_frontier_grows_in_any_steps(steps: list[int]):
    frontier, size = Frontier(), 0
    for step in steps:
        frontier.append(HASHES[size : min(size + step, 70)])
        size = min(size + step, 70)
        frontier = Frontier(frontier.size, frontier.peaks)
    assert frontier.size == size
    assert frontier.root() == plain_root(HASHES[:size])


@pytest.mark.parametrize(
    ("size", "peaks"), [(-1, HASHES[:1]), (1, []), (2, HASHES[:2]), (1, [b"short"]), (SIZE_MAX + 1, HASHES[:1])]
)
def test_an_invalid_frontier_is_refused(size: int, peaks: list[bytes]):
    with pytest.raises(ValidationError):
        Frontier(size, peaks)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3)])
def test_a_missing_leaf_has_no_proof(index: int, size: int):
    with pytest.raises(ValidationError):
        inclusion_proof(index, size, span_of(HASHES))
    assert not verify_inclusion(HASHES[0], index, size, [], HASHES[0])


SIZES = st.integers(1, 64)


@given(SIZES, st.data())
def test_a_forged_inclusion_proof_is_refused(size: int, data: st.DataObject):
    index = data.draw(st.integers(0, size - 1))
    root, proof = root_of(HASHES[:size]), inclusion_proof(index, size, span_of(HASHES))
    leaf = HASHES[index]
    assert not verify_inclusion(HASHES[-1], index, size, proof, root)
    assert not verify_inclusion(leaf, index, size, [*proof, leaf], root)
    assert not verify_inclusion(leaf, index, size, proof, HASHES[-1])
    assert not verify_inclusion(leaf[:-1], index, size, proof, root)
    other = data.draw(st.integers(0, size - 1).filter(lambda found: found != index)) if size > 1 else size
    assert not verify_inclusion(leaf, other, size, proof, root)
    for place in range(len(proof)):
        assert not verify_inclusion(leaf, index, size, proof[:place] + proof[place + 1 :], root)
        assert not verify_inclusion(leaf, index, size, [*proof[:place], HASHES[-1], *proof[place + 1 :]], root)
