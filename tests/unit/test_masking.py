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
        ("after 1.5 s", "after # s"),
        ("after -1,234.50 s", "after # s"),
        ("at 12:30:01 from 10.0.0.12", "at # from #"),
        ("no route to fe80::1:2 or [::1]", "no route to # or #"),
        ("db-3.eu.example.org refused", "… refused"),
        ("cannot reach a.b.internal:5432.", "cannot reach …."),
        ("db-north:5432 and localhost:80 are down", "… and … are down"),
        ("GET https://a.example/x?y=1, then 404", "GET …, then #"),
        ("mail to ada@mail.example.com bounced", "mail to … bounced"),
        ("the host db-north is down", "the host … is down"),
        ("host unreachable", "host unreachable"),
        ("the server said no", "the server said no"),
        ("requests.exceptions.ConnectionError", "requests.exceptions.ConnectionError"),
        ("socket.timeout: timed out", "socket.timeout: timed out"),
        ("std::bad_alloc in config.json", "std::bad_alloc in config.json"),
        ("", ""),
        ("x" * 5_000, "x" * TEXT_CHARACTERS_MAX),
    ],
)
def test_what_differs_is_masked(text: str, masked: str):
    assert mask_error(text) == masked
