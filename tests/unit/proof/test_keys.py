"""Keys: the vectors of RFC 8032, and invalid keys and signatures."""

import pickle
import sys

import pytest

from holdfast.errors import ValidationError
from holdfast.proof.keys import PublicKey, SecretKey, key_id_of, verify

VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]
ORDER = 2**252 + 27742317777372353535851937790883648493
WEAK = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    b"\xff" * 32,
    (2).to_bytes(32, "little"),
]
"""Points of small order in several encodings, and bytes that are not a point."""


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS, ids=["1", "2", "3", "sha"])
def test_published_signatures_are_reproduced(seed: str, public: str, message: str, signature: str):
    secret, body = SecretKey(bytes.fromhex(seed)), bytes.fromhex(message)
    assert secret.public_key == PublicKey(bytes.fromhex(public))
    assert secret.sign(body).hex() == signature
    assert verify(secret.public_key, body, bytes.fromhex(signature))
    assert not verify(secret.public_key, body + b"!", bytes.fromhex(signature))


def _key(number: int = 1) -> SecretKey:
    return SecretKey(bytes([number]) * 32)


def test_the_id_of_a_key_is_its_hash():
    public = _key().public_key
    assert public.key_id == key_id_of(public.public) == _key().key_id
    assert len(public.key_id) == 16
    assert {public: 1}[PublicKey(public.public)] == 1
    assert public not in (_key(2).public_key, public.public)


def test_a_signature_has_one_encoding():
    key = _key()
    signature = key.sign(b"it")
    bent = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    assert verify(key.public_key, b"it", signature)
    assert not verify(key.public_key, b"it", bent)
    assert not verify(key.public_key, b"it", signature[:-1])
    assert not verify(key.public_key, b"it", signature + b"\0")
    assert not verify(key.public_key, b"it", bytes(64))
    assert not verify(_key(2).public_key, b"it", signature)


@pytest.mark.parametrize("public", [*WEAK, b"", b"\1" * 31, b"\1" * 33], ids=bytes.hex)
def test_a_weak_public_key_is_refused(public: bytes):
    with pytest.raises(ValidationError):
        PublicKey(public)


@pytest.mark.parametrize("seed", [b"", bytes(32), b"\1" * 31, b"\1" * 33], ids=bytes.hex)
def test_a_secret_of_zeros_or_of_another_length_is_refused(seed: bytes):
    with pytest.raises(ValidationError):
        SecretKey(seed)


def test_a_secret_is_not_shown():
    key = _key()
    assert repr(key) == str(key) == f"SecretKey({key.key_id})"
    assert repr(key.public_key) == f"PublicKey({key.key_id})"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(key)


def test_without_pynacl_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nacl", None)
    with pytest.raises(ValidationError, match=r"pip install 'holdfast-ledger\[proof\]'") as caught:
        SecretKey(b"\1" * 32)
    assert caught.value.action == "Install it."
