"""The mark in the token of a fence, which says to which worker it was issued."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fence_tokens import is_issued_to, issue_token

DRAWN = "0123456789abcdef" * 2


def test_a_token_is_issued_to_one_worker() -> None:
    token = issue_token(DRAWN, "arm-7")
    assert (len(token), token[:24]) == (32, DRAWN[:24])
    assert is_issued_to("arm-7", token)
    assert is_issued_to("arm-7", f"{token}+all")
    assert not is_issued_to("arm-8", token)
    assert not is_issued_to("arm-7", token[:-1] + ("0" if token[-1] != "0" else "1"))


@given(token=st.text(), worker=st.text())
def test_a_text_that_no_ledger_issued_is_no_token(token: str, worker: str) -> None:
    assert not is_issued_to(worker, token)
