"""Stored refusals are raised again."""

import pytest

from holdfast import errors, liveness
from holdfast.ledger.requests import KeptItem


@pytest.mark.parametrize("kind", [errors.LimitExceeded, errors.GateDenied, errors.FenceLost, errors.LeaseConflictError])
def test_a_kept_refusal_is_made_of_its_code_and_message(kind: type[errors.HoldfastError]):
    """Other errors with the same code may need more arguments, such as those of `holdfast.liveness`."""
    assert issubclass(liveness.LivenessGateDenial, errors.GateDenied)
    found = KeptItem(code=kind.code, message="no").error()
    assert type(found) is kind and found.message == "no"
