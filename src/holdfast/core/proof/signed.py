"""A statement with the signature under it, on its way to the events that it covers."""

import msgspec

from holdfast.core.proof.stated import Statement


class Signed(msgspec.Struct, frozen=True):
    """What was signed, byte for byte, by which key, and what it says. Whoever makes one has checked the signature."""

    key_id: str
    signature: bytes
    statement: bytes
    said: Statement


class _Binding(msgspec.Struct):
    counter: int | None = None


class _Counted(_Binding):
    binding: _Binding | None = None


_counted = msgspec.json.Decoder(_Counted)


def counter_of(statement: bytes) -> int | None:
    """The signer's count in a statement that was accepted, in either shape."""
    found = _counted.decode(statement)
    return found.counter if found.binding is None else found.binding.counter
