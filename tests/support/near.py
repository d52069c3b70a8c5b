"""The ledger on the store behind a remote ledger: relays, supervisors and other services run there."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from holdfast import Ledger

_BEHIND: WeakKeyDictionary[Ledger, Ledger] = WeakKeyDictionary()


@contextmanager
def serves(behind: Ledger, remote: Ledger) -> Iterator[None]:
    """Remember which ledger a remote one is served from."""
    _BEHIND[remote] = behind
    try:
        yield
    finally:
        del _BEHIND[remote]


def near(ledger: Ledger) -> Ledger:
    """Return the ledger on the store: the one behind a remote ledger, and any other itself."""
    return _BEHIND.get(ledger, ledger)
