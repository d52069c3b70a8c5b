"""The key book: which keys follow from the first one, and which do not."""

import sys
from typing import Any

import msgspec
import pytest

from holdfast.errors import ValidationError
from holdfast.proof.key_book import Enrolment, KeyBook, KeyChange, KeyProblem, check_key_changes, may_sign_head
from holdfast.proof.keys import KeyRole, SecretKey

LEDGER = "ledger-1"
SERVER, SECOND, OPERATOR, WORKER, OTHER = (SecretKey(bytes([number]) * 32) for number in range(1, 6))
IDENTITY = b"\1" + bytes(31)
"""The neutral point. As a key it would accept a signature that was made without a secret."""


def change(pos: int, key: SecretKey, role: str, *, by: SecretKey = SERVER, what: str = "enrolled", **fields: Any) -> KeyChange:
    draft = KeyChange(pos, what, key.key_id, role, f"{role}-1", key.public_key.public, 1_000 + pos, "operator:ada", by.key_id)
    return signed(msgspec.structs.replace(draft, **fields), by)


def signed(draft: KeyChange, by: SecretKey, ledger_id: str = LEDGER) -> KeyChange:
    return msgspec.structs.replace(draft, signature=by.sign(draft.message(ledger_id)))


FIRST = change(3, SERVER, "server")


def problems(*changes: KeyChange) -> list[str]:
    """The problems of key changes after the first key."""
    return [problem.detail for problem in check_key_changes(LEDGER, [FIRST, *changes])]


def test_the_signed_bytes_of_a_key_change_are_canonical():
    assert FIRST.message(LEDGER) == (
        b'holdfast key v1\n{"at":1003,"change":"enrolled","key_id":"%b","ledger":"ledger-1","name":"server-1",'
        b'"public":"%b","role":"server"}' % (SERVER.key_id.encode(), SERVER.public_key.public.hex().encode())
    )


def test_all_keys_follow_from_the_first():
    changes = [
        FIRST,
        change(5, OPERATOR, "operator"),
        change(6, WORKER, "worker", by=OPERATOR),
        change(9, SECOND, "server"),
        change(12, SERVER, "server", by=SECOND, what="revoked"),
        change(13, OTHER, "worker", by=SECOND, name="größe 😀"),
        change(14, OPERATOR, "operator", by=OPERATOR, what="revoked"),
    ]
    assert check_key_changes(LEDGER, changes) == []
    assert check_key_changes(LEDGER, []) == []


def test_an_operator_may_enrol_workers_and_operators_only():
    operator = change(5, OPERATOR, "operator")
    assert problems(operator, change(6, OTHER, "operator", by=OPERATOR), change(7, WORKER, "worker", by=OPERATOR)) == []
    minted = problems(operator, change(6, SECOND, "server", by=OPERATOR))
    ended = problems(operator, change(6, SECOND, "server"), change(7, SECOND, "server", by=OPERATOR, what="revoked"))
    assert minted == ended == [f"the key {OPERATOR.key_id} may not vouch for a server's key"]


def test_a_book_knows_the_owner_of_a_key_at_a_position():
    book = KeyBook([FIRST, change(5, WORKER, "worker"), change(9, WORKER, "worker", what="revoked")])
    found = book.find(WORKER.key_id)
    assert found is not None
    assert (found.enrolled_pos, found.revoked_pos, found.enrolled_at, found.revoked_at) == (5, 9, 1_005, 1_009)
    assert (len(book), book.last_change_pos, [key.key_id for key in book]) == (2, 9, [SERVER.key_id, WORKER.key_id])
    assert [pos for pos in range(3, 12) if book.valid(WORKER.key_id, "worker", "worker-1", pos)] == [6, 7, 8]
    assert not book.valid(WORKER.key_id, KeyRole.WORKER)
    assert [pos for pos in (3, 4, 99) if book.valid(SERVER.key_id, KeyRole.SERVER, pos=pos)] == [4, 99]
    assert not book.valid(SERVER.key_id, "server", "server-2")
    assert not book.valid(SERVER.key_id, "operator", "server-1")
    assert not book.valid(OTHER.key_id, "worker")
    for role in KeyRole:
        assert [book.vouches(key.key_id, role) for key in (SERVER, WORKER, OTHER)] == [True, False, False]
    assert book.public_key(SERVER.key_id) == SERVER.public_key
    assert book.public_key(SERVER.key_id) is book.public_key(SERVER.key_id)
    assert KeyBook().last_change_pos == 0


@pytest.mark.parametrize(
    "first",
    [
        change(3, OPERATOR, "operator", by=OPERATOR),
        change(3, SERVER, "server", by=OPERATOR),
        change(3, WORKER, "worker", by=WORKER),
    ],
)
def test_the_first_key_is_a_self_signed_server_key(first: KeyChange):
    assert check_key_changes(LEDGER, [first]) == [
        KeyProblem(3, first.key_id, "the first key of a ledger is a server's, and vouches for itself")
    ]


def test_nothing_is_revoked_before_it_was_enrolled():
    assert check_key_changes(LEDGER, [change(3, SERVER, "server", what="revoked")])[0].detail.endswith("was never enrolled")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change(3, WORKER, "worker")], "not in the order"),
        ([change(2, WORKER, "worker")], "not in the order"),
        ([change(5, WORKER, "worker", by=OTHER)], "may not vouch"),
        ([change(5, SERVER, "server")], "is enrolled for server 'server-1' already"),
        ([change(5, WORKER, "worker", what="revoked")], "was never enrolled"),
        ([change(5, SERVER, "server", what="revoked")], "the last server's key"),
        ([change(5, WORKER, "worker", what="forgotten")], "enrolled or revoked"),
        ([change(5, WORKER, "client")], "role is one of worker, operator, server"),
        ([change(5, WORKER, "worker", name=" ")], "printable"),
        ([change(5, WORKER, "worker", name="x" * 201)], "201 bytes"),
        ([change(5, WORKER, "worker", key_id=OTHER.key_id)], "id does not fit"),
        ([change(5, WORKER, "worker", public=OTHER.public_key.public)], "id does not fit"),
        ([change(5, WORKER, "worker", public=IDENTITY)], "not a valid Ed25519 point"),
        ([change(5, WORKER, "worker", public=bytes(32))], "not a valid Ed25519 point"),
        ([change(5, WORKER, "worker", public=b"short")], "has 32 bytes"),
        ([msgspec.structs.replace(change(5, WORKER, "worker"), at=2**60)], "cannot be reconstructed"),
        ([msgspec.structs.replace(change(5, WORKER, "worker"), at=7)], "does not fit"),
        ([msgspec.structs.replace(change(5, WORKER, "worker"), name="worker-2")], "does not fit"),
        ([msgspec.structs.replace(change(5, WORKER, "worker"), role="operator")], "does not fit"),
        ([msgspec.structs.replace(change(5, WORKER, "worker"), signature=b"")], "does not fit"),
        ([signed(change(5, WORKER, "worker"), SERVER, "ledger-2")], "does not fit"),
        ([signed(change(5, WORKER, "worker"), OTHER)], "does not fit"),
    ],
)
def test_each_change_must_be_allowed_and_signed(changes: list[KeyChange], expected: str):
    [problem] = problems(*changes)
    assert expected in problem


def test_a_worker_key_may_enrol_no_key():
    assert "may not vouch" in problems(change(5, WORKER, "worker"), change(6, OTHER, "worker", by=WORKER))[0]


def test_a_revoked_key_may_enrol_no_key_and_stays_revoked():
    before = [change(5, OPERATOR, "operator"), change(6, OPERATOR, "operator", what="revoked")]
    [problem] = problems(*before, change(7, WORKER, "worker", by=OPERATOR))
    assert "may not vouch" in problem
    [problem] = problems(*before, change(7, OPERATOR, "operator"))
    assert "stays so" in problem
    [problem] = problems(*before, change(7, OPERATOR, "operator", what="revoked"))
    assert "revoked already" in problem


@pytest.mark.parametrize(("role", "name"), [("worker", "worker-2"), ("operator", "worker-1")])
def test_a_revocation_names_the_key_as_it_was_enrolled(role: str, name: str):
    [problem] = problems(change(5, WORKER, "worker"), change(6, WORKER, role, what="revoked", name=name))
    assert "another role or name" in problem


def test_changes_signed_by_an_invalid_key_are_invalid():
    rogue = signed(change(5, OPERATOR, "operator"), OTHER)
    found = check_key_changes(LEDGER, [FIRST, rogue, change(6, WORKER, "worker", by=OPERATOR), change(7, OTHER, "worker")])
    assert [(problem.pos, problem.key_id) for problem in found] == [(5, OPERATOR.key_id), (6, WORKER.key_id)]


def test_without_pynacl_the_check_raises_instead_of_finding_problems(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nacl", None)
    with pytest.raises(ValidationError, match="pip install"):
        check_key_changes(LEDGER, [FIRST])


@pytest.mark.parametrize(
    ("role", "pos", "may"),
    [("server", 4, False), ("server", 5, True), ("server", 8, True), ("server", 9, False), ("worker", 6, False)],
)
def test_a_head_is_signed_by_a_key_of_its_own_tree(role: str, pos: int, may: bool):
    key = Enrolment("k", role, "n", b"", 5, 0, "by", revoked_pos=9)
    assert may_sign_head(key, pos) is may


def test_a_key_without_a_revocation_stays_valid():
    assert may_sign_head(Enrolment("k", "server", "n", b"", 5, 0, "by"), 1_000)
