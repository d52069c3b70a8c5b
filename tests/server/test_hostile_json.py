"""Every route that takes a body refuses JSON that readers understand in different ways, and changes nothing."""

import re
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.server.routes import ROUTES, Route
from tests.support.server import Client, RunningServer, running

TAKERS = [route for route in ROUTES if route.body is not None]
NAMES = {"job_id": "1", "scope": "kinds", "key_id": "0" * 16}
WHOLE = {
    "nothing but blanks": b" \n",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"kind"',
    "half an object": b'{"kind"',
    "two objects": b"{}{}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"v":1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"v":1}'.encode("utf-16-le"),
    "UTF-32": '{"v":1}'.encode("utf-32"),
    "a comment": b"{/* */}",
    "a comma too many": b'{"v":1,}',
    "single quotes": b"{'v':1}",
    "gzip without its header": b"\x1f\x8b\x08\x00",
}
VALUES = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "1e999": b"1e999",
    "-1e999": b"-1e999",
    "2^53": b"9007199254740992",
    "-2^53": b"-9007199254740992",
    "5,000 digits": b"1" * 5_000,
    "5,000 digits of a fraction's exponent": b"1e" + b"9" * 5_000,
    "a leading zero": b"01",
    "hexadecimal": b"0x1",
    "a key twice": b'{"a":1,"a":2}',
    "a key twice, once escaped": b'{"a":1,"\\u0061":2}',
    "a lone surrogate": b'"\\ud800"',
    "a lone surrogate as a key": b'{"\\udfff":1}',
    "surrogates in the wrong order": b'"\\udc00\\ud800"',
    "a NUL byte": b'"\x00"',
    "a line break in a text": b'"\n"',
    "invalid UTF-8": b'"\xff"',
    "an overlong encoding": b'"\xc0\xaf"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
}
BODIES = {**WHOLE, **{name: b'{"v":' + value + b"}" for name, value in VALUES.items()}, "a field twice": b'{"v":1,"v":1}'}
DEEP = {"10,000 lists": b"[" * 10_000 + b"]" * 10_000, "10,000 objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000}


@pytest.fixture(scope="module")
def shared(shared_url: str) -> Iterator[RunningServer]:
    """One server for all routes: no request changes anything."""
    with holdfast.open(shared_url) as ledger, running(ledger) as server:
        ledger.enqueue("k")
        ledger.sign_in("x")
        yield server


@pytest.fixture(scope="module")
def root(shared: RunningServer) -> Client:
    return shared.client().acting(Holdfast_Actor="worker:x#boot1")


def _path(route: Route) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "x"), route.path)


@pytest.mark.parametrize("route", TAKERS, ids=[f"{route.method} {route.path}" for route in TAKERS])
def test_a_body_that_is_not_strict_json_is_refused(shared: RunningServer, root: Client, route: Route) -> None:
    before = shared.ledger.position()
    client = root.acting(Holdfast_Actor="operator:kim") if route.least != "worker" else root
    for name, body in BODIES.items():
        refused = client.send(route.method, _path(route), raw=body)
        assert (refused.status, refused.data["code"]) == (400, "validation_error"), (name, refused.body)
        assert len(refused.body) < 2_000, name
    for name, value in DEEP.items():
        refused = client.send(route.method, _path(route), raw=b'{"v":' + value + b"}")
        assert (refused.status, refused.data["code"]) == (413, "limit_exceeded"), (name, refused.body)
    assert shared.ledger.position() == before


@pytest.mark.parametrize("route", TAKERS, ids=[f"{route.method} {route.path}" for route in TAKERS])
def test_a_body_of_another_type_is_refused(shared: RunningServer, root: Client, route: Route) -> None:
    before = shared.ledger.position()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml", "application/x-python-pickle", ""):
        refused = root.send(route.method, _path(route), raw=b"{}", Content_Type=kind)
        assert (refused.status, refused.data["code"]) == (415, "unsupported_media_type"), (kind, refused.body)
    assert shared.ledger.position() == before
