"""Refusals by their stable code."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import HoldfastError


@contextmanager
def refused(code: str, saying: str = "") -> Iterator[None]:
    """Fail unless the block is refused with this code and a message that contains `saying`."""
    with pytest.raises(HoldfastError) as caught:
        yield
    assert (caught.value.code, saying in str(caught.value)) == (code, True), f"{caught.value.code}: {caught.value}"
