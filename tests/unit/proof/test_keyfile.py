"""A key file has one form or is refused, and no refusal shows a secret."""

import json
import traceback

import pytest

from holdfast.errors import HoldfastError
from holdfast.proof.keys import KeyFile, KeyRole, SecretKey, decode_key, encode_key

SECRET = SecretKey(b"\1" * 32)
OTHER = SecretKey(b"\2" * 32)
WHOLE = KeyFile(KeyRole.WORKER, "arm-1", SECRET.public_key, SECRET)
FIELDS = json.loads(encode_key(WHOLE))


def test_a_key_file_is_read_back():
    text = encode_key(WHOLE)
    assert text.endswith("\n")
    found = decode_key(text)
    assert encode_key(found) == text
    assert (found.role, found.name, found.key_id) == (KeyRole.WORKER, "arm-1", SECRET.key_id)
    assert found.secret is not None and found.secret.sign(b"it") == SECRET.sign(b"it")
    assert json.loads(text) == {
        "holdfast_key": 1,
        "role": "worker",
        "name": "arm-1",
        "key_id": SECRET.key_id,
        "public": SECRET.public_key.public.hex(),
        "secret": "01" * 32,
    }


def test_a_public_key_file_has_no_secret():
    public = KeyFile(KeyRole.SERVER, "ledger", SECRET.public_key)
    assert "secret" not in encode_key(public)
    assert decode_key(encode_key(public)) == public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps(FIELDS)[:-1],
        json.dumps(FIELDS | {"more": 1}),
        json.dumps(FIELDS | {"holdfast_key": 2}),
        json.dumps(FIELDS | {"role": "client"}),
        json.dumps(FIELDS | {"name": " "}),
        json.dumps(FIELDS | {"name": 3}),
        json.dumps(FIELDS | {"key_id": OTHER.key_id}),
        json.dumps(FIELDS | {"public": OTHER.public_key.public.hex(), "key_id": OTHER.key_id}),
        json.dumps(FIELDS | {"public": "00" * 32}),
        json.dumps(FIELDS | {"secret": "0" * 63 + "g"}),
        json.dumps(FIELDS | {"secret": "01" * 31}),
        json.dumps(FIELDS | {"secret": "AB" * 32}),
        json.dumps(FIELDS)[:-1] + ',"name":"arm-2"}',
        json.dumps(FIELDS) + " " * 5_000,
        json.dumps(FIELDS)[:-1] + "\ud800}",
    ],
)
def test_invalid_key_files_are_refused_without_showing_their_contents(text: str):
    with pytest.raises(HoldfastError) as caught:
        decode_key(text)
    assert "0101" not in "".join(traceback.format_exception(caught.value))
    assert "0101" not in repr(WHOLE)
    assert caught.value.__context__ is None
