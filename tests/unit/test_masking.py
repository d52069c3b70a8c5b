"""Error texts without what differs from case to case."""

import pytest

from holdfast.core.masking import TEXT_CHARACTERS_MAX, mask_error


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("TimeoutError: read timed out after 30 s", "TimeoutError: read timed out after # s"),
        ("no file '/tmp/a7/b' here", "no file '…' here"),
        ('missing "url" and `x y`', "missing '…' and '…'"),
        ("it can't be, it won't", "it can't be, it won't"),
        ("at 0xDEADbeef and deadbeef01", "at # and #"),
        ("job 9f86d081-884c-4d65-9a2f-eaa0c55ad015 failed", "job # failed"),
        ("a defaced facade", "a defaced facade"),
        ("user42 on port 8080", "user# on port #"),
        ("", ""),
        ("x" * 5_000, "x" * TEXT_CHARACTERS_MAX),
    ],
)
def test_what_differs_is_masked(text: str, masked: str):
    assert mask_error(text) == masked
