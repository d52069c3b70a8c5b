"""Checking what somebody else says of a tree (RFC 9162, 2.1.3.2 and 2.1.4.2). Everything that comes in may be forged."""

from collections.abc import Iterable, Sequence

from holdfast.core.proof.merkle import EMPTY_ROOT, HASH_BYTES, SIZE_MAX, Hash, node_hash


def verify_inclusion(leaf: Hash, index: int, size: int, proof: Sequence[Hash], root: Hash) -> bool:
    """Whether `proof` shows that the leaf with hash `leaf` is number `index` of the tree of `size` leaves with that root."""
    if not 0 <= index < size <= SIZE_MAX or not _sound([leaf, root, *proof]):
        return False
    place, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(sibling, found)
            place, last = _climb(place, last)
        else:
            found = node_hash(found, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(old_size: int, size: int, proof: Sequence[Hash], old_root: Hash, root: Hash) -> bool:
    """Whether `proof` shows that the tree of `size` leaves with root `root` begins with the older tree.

    Every tree begins with the empty one.
    """
    if not 0 <= old_size <= size <= SIZE_MAX or not _sound([old_root, root, *proof]):
        return False
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT and (root == EMPTY_ROOT) == (size == 0)
    if old_size == size:
        return not proof and old_root == root
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    return bool(path) and _grows(old_size, size, path, old_root, root)


def _grows(old_size: int, size: int, path: Sequence[Hash], old_root: Hash, root: Hash) -> bool:
    place, last = old_size - 1, size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old_found = found = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old_found, found = node_hash(sibling, old_found), node_hash(sibling, found)
            place, last = _climb(place, last)
        else:
            found = node_hash(found, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and old_found == old_root and found == root


def _climb(place: int, last: int) -> tuple[int, int]:
    """Past the levels at which a last, even node has no sibling."""
    while place and not place & 1:
        place, last = place >> 1, last >> 1
    return place, last


def _sound(hashes: Iterable[Hash]) -> bool:
    return all(len(found) == HASH_BYTES for found in hashes)
