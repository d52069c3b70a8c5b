"""Merkle trees (RFC 9162): hashes, proofs, and the verification of proofs."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from holdfast.errors import ValidationError

HASH_BYTES = 32
SIZE_MAX = 2**63 - 1
Hash = bytes
Span = Callable[[int, int], Hash]
"""Returns the root of the leaves from the first index up to, but without, the second."""
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(leaf: bytes) -> Hash:
    return sha256(b"\0" + leaf).digest()


def node_hash(left: Hash, right: Hash) -> Hash:
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """The state that a tree needs to grow: the roots of its full subtrees, the largest first, one per set bit of its size."""

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[Hash] = ()) -> None:
        self.peaks = list(peaks)
        self.size = size
        if not 0 <= size <= SIZE_MAX or size.bit_count() != len(self.peaks):
            raise ValidationError("a frontier must have one subtree for each bit of its size")
        if any(len(peak) != HASH_BYTES for peak in self.peaks):
            raise ValidationError(f"a hash has {HASH_BYTES} bytes")

    def append(self, hashes: Iterable[Hash]) -> None:
        """Add leaves by their hashes."""
        peaks, size, sha = self.peaks, self.size, sha256
        pop, push = peaks.pop, peaks.append
        for found in hashes:
            node, full = found, size
            while full & 1:
                node = sha(b"\1" + pop() + node).digest()
                full >>= 1
            push(node)
            size += 1
        self.size = size

    def root(self) -> Hash:
        return fold(self.peaks)


def fold(peaks: Sequence[Hash]) -> Hash:
    """Return the root over full subtrees, given in decreasing size."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def root_of(hashes: Iterable[Hash]) -> Hash:
    """Return the root of the tree with these leaves."""
    frontier = Frontier()
    frontier.append(hashes)
    return frontier.root()


def full_root(hashes: Sequence[Hash]) -> Hash:
    """Return the root of a full tree of 2^n leaves. It works level by level, which is faster than leaf by leaf."""
    sha = sha256
    while len(hashes) > 1:
        hashes = [sha(b"\1" + left + right).digest() for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]


def inclusion_proof(index: int, size: int, span: Span) -> list[Hash]:
    """Return the proof that leaf `index` is in the tree of `size` leaves. The hash nearest to the leaf comes first."""
    if not 0 <= index < size:
        raise ValidationError(f"a tree of {size} has no leaf {index}")
    first, end, proof = 0, size, []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            proof.append(span(middle, end))
            end = middle
        else:
            proof.append(span(first, middle))
            first = middle
    return proof[::-1]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def verify_inclusion(leaf: Hash, index: int, size: int, proof: Sequence[Hash], root: Hash) -> bool:
    """Return whether `proof` shows that `leaf` is the hash at `index` in the tree of `size` leaves with that root."""
    if not 0 <= index < size <= SIZE_MAX or not _are_hashes([leaf, root, *proof]):
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


def _climb(place: int, last: int) -> tuple[int, int]:
    """Skip the levels at which the last node has no sibling because its index is even."""
    while place and not place & 1:
        place, last = place >> 1, last >> 1
    return place, last


def _are_hashes(hashes: Iterable[Hash]) -> bool:
    return all(len(found) == HASH_BYTES for found in hashes)
