"""The tree: published vectors, its definition, and forgeries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.proof.merkle import (
    EMPTY_ROOT,
    SIZE_MAX,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    span_of,
    verify_consistency,
    verify_inclusion,
)
from tests.unit.proof.trees import (
    CONSISTENCIES,
    INCLUSIONS,
    LEAVES,
    ROOTS,
    numbered,
    plain_path,
    plain_proof,
    plain_root,
    unhex,
)

PUBLISHED = [leaf_hash(leaf) for leaf in LEAVES]
HASHES = numbered(70)


@pytest.mark.parametrize("size", range(9))
def test_published_roots(size: int):
    assert root_of(PUBLISHED[:size]).hex() == ROOTS[size]


@pytest.mark.parametrize(("place", "proof"), INCLUSIONS.items(), ids=str)
def test_published_inclusions(place: tuple[int, int], proof: list[str]):
    index, size = place
    assert inclusion_proof(index, size, span_of(PUBLISHED)) == unhex(proof)
    assert verify_inclusion(PUBLISHED[index], index, size, unhex(proof), bytes.fromhex(ROOTS[size]))


@pytest.mark.parametrize(("sizes", "proof"), CONSISTENCIES.items(), ids=str)
def test_published_consistencies(sizes: tuple[int, int], proof: list[str]):
    old, new = (bytes.fromhex(ROOTS[size]) for size in sizes)
    assert consistency_proof(*sizes, span_of(PUBLISHED)) == unhex(proof)
    assert verify_consistency(*sizes, unhex(proof), old, new)


def test_every_small_tree_is_as_defined():
    for size in range(1, 34):
        hashes, root = HASHES[:size], plain_root(HASHES[:size])
        assert root_of(hashes) == root
        for index in range(size):
            path = inclusion_proof(index, size, span_of(HASHES))
            assert path == plain_path(index, hashes)
            assert verify_inclusion(hashes[index], index, size, path, root)
            proof = consistency_proof(index + 1, size, span_of(HASHES))
            assert proof == plain_proof(index + 1, hashes)
            assert verify_consistency(index + 1, size, proof, plain_root(HASHES[: index + 1]), root)


@given(st.lists(st.integers(0, 20), max_size=6))
def test_a_frontier_grows_in_any_steps(steps: list[int]):
    frontier, size = Frontier(), 0
    for step in steps:
        frontier.append(HASHES[size : min(size + step, 70)])
        size = min(size + step, 70)
        frontier = Frontier(frontier.size, frontier.peaks)
    assert frontier.size == size
    assert frontier.root() == plain_root(HASHES[:size])


def test_what_a_frontier_gives_away_is_a_copy():
    frontier = Frontier(1, HASHES[:1])
    frontier.peaks.clear()
    assert frontier.root() == HASHES[0]


@pytest.mark.parametrize(
    ("size", "peaks"), [(-1, HASHES[:1]), (1, []), (2, HASHES[:2]), (1, [b"short"]), (SIZE_MAX + 1, HASHES[:1])]
)
def test_no_frontier_of_another_shape(size: int, peaks: list[bytes]):
    with pytest.raises(ValidationError):
        Frontier(size, peaks)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3)])
def test_no_proof_of_a_leaf_that_is_not_there(index: int, size: int):
    with pytest.raises(ValidationError):
        inclusion_proof(index, size, span_of(HASHES))
    assert not verify_inclusion(HASHES[0], index, size, [], HASHES[0])


@pytest.mark.parametrize(("old_size", "size"), [(-1, 3), (4, 3)])
def test_no_proof_of_a_tree_that_shrank(old_size: int, size: int):
    with pytest.raises(ValidationError):
        consistency_proof(old_size, size, span_of(HASHES))
    assert not verify_consistency(old_size, size, [], HASHES[0], HASHES[0])


def test_every_tree_begins_with_the_empty_one():
    assert consistency_proof(0, 5, span_of(HASHES)) == []
    assert verify_consistency(0, 5, [], EMPTY_ROOT, root_of(HASHES[:5]))
    assert verify_consistency(0, 0, [], EMPTY_ROOT, EMPTY_ROOT)
    assert not verify_consistency(0, 0, [], EMPTY_ROOT, HASHES[0])
    assert not verify_consistency(0, 5, [], EMPTY_ROOT, EMPTY_ROOT)
    assert not verify_consistency(0, 5, [], HASHES[0], HASHES[1])
    assert not verify_consistency(0, 5, HASHES[:1], EMPTY_ROOT, HASHES[0])


SIZES = st.integers(1, 64)


@given(SIZES, st.data())
def test_a_forged_inclusion_is_seen(size: int, data: st.DataObject):
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


@given(SIZES, st.data())
def test_a_forged_consistency_is_seen(size: int, data: st.DataObject):
    old_size = data.draw(st.integers(1, size))
    old_root, root = root_of(HASHES[:old_size]), root_of(HASHES[:size])
    proof = consistency_proof(old_size, size, span_of(HASHES))
    assert not verify_consistency(old_size, size, proof, HASHES[-1], root)
    assert not verify_consistency(old_size, size, proof, old_root, HASHES[-1])
    assert not verify_consistency(old_size, size, [*proof, HASHES[-1]], old_root, root)
    assert not verify_consistency(old_size, size, [*proof, b"short"], old_root, root)
    for place in range(len(proof)):
        assert not verify_consistency(old_size, size, proof[:place] + proof[place + 1 :], old_root, root)
        assert not verify_consistency(old_size, size, [*proof[:place], HASHES[-1], *proof[place + 1 :]], old_root, root)
