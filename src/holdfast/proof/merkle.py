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

    __slots__ = ("_peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[Hash] = ()) -> None:
        self._peaks = list(peaks)
        self.size = size
        if not 0 <= size <= SIZE_MAX or size.bit_count() != len(self._peaks):
            raise ValidationError("a frontier must have one subtree for each bit of its size")
        if any(len(peak) != HASH_BYTES for peak in self._peaks):
            raise ValidationError(f"a hash has {HASH_BYTES} bytes")

    @property
    def peaks(self) -> list[Hash]:
        return list(self._peaks)

    def append(self, hashes: Iterable[Hash]) -> None:
        """Add leaves by their hashes."""
        peaks, size, sha = self._peaks, self.size, sha256
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
        return fold(self._peaks)


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


def span_of(hashes: Sequence[Hash]) -> Span:
    """Return the span function of a tree whose leaf hashes are all in memory."""
    return lambda first, end: root_of(hashes[first:end])


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


def consistency_proof(old_size: int, size: int, span: Span) -> list[Hash]:
    """Return the proof that the tree of `size` leaves extends the tree of `old_size` leaves. It is empty for `old_size` 0."""
    if not 0 <= old_size <= size:
        raise ValidationError(f"a tree of {size} did not begin with one of {old_size}")
    first, end, proof = 0, size if old_size else 0, []
    while old_size < end:
        middle = first + _split(end - first)
        if old_size <= middle:
            proof.append(span(middle, end))
            end = middle
        else:
            proof.append(span(first, middle))
            first = middle
    if first:
        proof.append(span(first, end))
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


def verify_consistency(old_size: int, size: int, proof: Sequence[Hash], old_root: Hash, root: Hash) -> bool:
    """Return whether `proof` shows that the tree of `size` leaves with root `root` extends the older tree.

    Every tree extends the empty one.
    """
    if not 0 <= old_size <= size <= SIZE_MAX or not _are_hashes([old_root, root, *proof]):
        return False
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT and (root == EMPTY_ROOT) == (size == 0)
    if old_size == size:
        return not proof and old_root == root
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    return bool(path) and _is_extension(old_size, size, path, old_root, root)


def _is_extension(old_size: int, size: int, path: Sequence[Hash], old_root: Hash, root: Hash) -> bool:
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
    """Skip the levels at which the last node has no sibling because its index is even."""
    while place and not place & 1:
        place, last = place >> 1, last >> 1
    return place, last


def _are_hashes(hashes: Iterable[Hash]) -> bool:
    return all(len(found) == HASH_BYTES for found in hashes)
