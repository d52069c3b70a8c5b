"""Keys: the first signs itself, every later change is signed by an enrolled key, and each has a position in the total order."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, KeyRecord, Ledger
from holdfast.proof.key_book import check_key_changes
from holdfast.proof.keys import KeyFile
from holdfast.testing import ManualClock
from tests.contract.builders import refused

SERVER = holdfast.draw_key("server", "main")
OPERATOR = holdfast.draw_key("operator", "ada")
WORKER = holdfast.draw_key("worker", "arm-1")
SMALL_ORDER = bytes(31) + b"\x80"

Open = Callable[..., Ledger]


@pytest.fixture
def opened(store_url: str, clock: ManualClock) -> Iterator[Open]:
    """Opens the same ledger with some keys."""
    made: list[Ledger] = []

    def opener(*keys: KeyFile, actor: str = "client") -> Ledger:
        made.append(holdfast.open(store_url, clock=clock, keys=keys, actor=actor))
        return made[-1]

    yield opener
    for ledger in made:
        ledger.close()


@pytest.fixture
def server(opened: Open) -> Ledger:
    """A ledger with its first key."""
    ledger = opened(SERVER)
    enrol(ledger, SERVER)
    return ledger


def enrol(ledger: Ledger, key: KeyFile) -> KeyRecord:
    return ledger.enrol_key(key.public, role=key.role, name=key.name)


def log(ledger: Ledger) -> list[Any]:
    return ledger._store.read(lambda session: session.key_log())


def sound(ledger: Ledger) -> bool:
    return check_key_changes(ledger.id, log(ledger)) == []


def test_the_first_key_vouches_for_itself(opened: Open, clock: ManualClock):
    ledger = opened(SERVER, actor="ada")
    made = enrol(ledger, SERVER)
    assert (made.key_id, made.role, made.name) == (SERVER.key_id, "server", "main")
    assert made.public == SERVER.public.public.hex()
    assert (made.enrolled_at, made.enrolled_by, made.revoked_pos) == (clock.now(), "operator:ada", None)
    assert [change.signer for change in log(ledger)] == [SERVER.key_id]
    assert ledger.keys() == [made]
    assert sound(ledger)


@pytest.mark.parametrize(("ring", "key"), [((), SERVER), ((WORKER,), WORKER), ((OPERATOR,), OPERATOR), ((SERVER,), WORKER)])
def test_only_a_self_signed_server_key_can_be_the_first(opened: Open, ring: tuple[KeyFile, ...], key: KeyFile):
    ledger = opened(*ring)
    with refused("forbidden") as caught:
        enrol(ledger, key)
    assert caught.value.action
    assert ledger.keys() == []


@pytest.mark.parametrize("voucher", [SERVER, OPERATOR])
def test_servers_and_operators_may_enrol_keys(server: Ledger, opened: Open, voucher: KeyFile):
    enrol(server, OPERATOR)
    ledger = opened(WORKER, voucher)
    enrol(ledger, WORKER)
    assert log(ledger)[-1].signer == voucher.key_id
    assert ledger.keys()[2].name == "arm-1"
    assert sound(ledger)


def test_an_operator_enrols_keys_under_their_own_name(server: Ledger, opened: Open):
    enrol(server, OPERATOR)
    opened(SERVER, OPERATOR, actor="ada").enrol_key(WORKER.public, role="worker", name="arm-1")
    assert log(server)[-1].signer == OPERATOR.key_id
    assert log(server)[-1].by == "operator:ada"


@pytest.mark.parametrize("ring", [(), (WORKER,), (holdfast.draw_key("server", "main"),), (OPERATOR,)])
def test_no_other_role_may_enrol_a_key(server: Ledger, opened: Open, ring: tuple[KeyFile, ...]):
    enrol(server, WORKER)
    before = log(server)
    for change in (
        lambda ledger: enrol(ledger, holdfast.draw_key("worker", "arm-2")),
        lambda ledger: ledger.revoke_key(WORKER.key_id),
        lambda ledger: ledger.rotate_key(WORKER.key_id, holdfast.draw_key("worker", "arm-1").public),
    ):
        with refused("forbidden") as caught:
            change(opened(*ring))
        assert "HOLDFAST_KEYS" in caught.value.action
    assert log(server) == before


def test_an_operator_may_not_enrol_a_server_key(server: Ledger, opened: Open):
    """Otherwise an operator could enrol a server key and sign heads with it."""
    enrol(server, OPERATOR)
    enrol(server, holdfast.draw_key("server", "second"))
    before = log(server)
    ledger, following = opened(OPERATOR, actor="ada"), holdfast.draw_key("server", "main")
    for change in (
        lambda: enrol(ledger, following),
        lambda: ledger.revoke_key(SERVER.key_id),
        lambda: ledger.rotate_key(SERVER.key_id, following.public),
    ):
        with refused("forbidden") as caught:
            change()
        assert "key of a server (" in caught.value.action
    assert log(server) == before
    opened(OPERATOR, SERVER, actor="ada").rotate_key(SERVER.key_id, following.public)
    assert {change.signer for change in log(server)[len(before) :]} == {SERVER.key_id}


def test_a_revoked_key_may_not_enrol_keys(server: Ledger, opened: Open):
    enrol(server, OPERATOR)
    ledger = opened(OPERATOR)
    enrol(ledger, WORKER)
    server.revoke_key(OPERATOR.key_id)
    with refused("forbidden"):
        ledger.revoke_key(WORKER.key_id)


def test_enrolling_again_returns_the_same_answer(server: Ledger, opened: Open, clock: ManualClock):
    first = enrol(server, WORKER)
    clock.advance(5)
    assert enrol(server, WORKER) == first
    assert opened().enrol_key(WORKER.public.public, role="worker", name="arm-1") == first  # no signature
    assert opened().enrol_key(WORKER.public.public.hex(), role="worker", name="arm-1") == first
    assert len(log(server)) == 2


@pytest.mark.parametrize(("role", "name"), [("worker", "arm-2"), ("operator", "arm-1")])
def test_a_key_belongs_to_one_role_and_name(server: Ledger, role: str, name: str):
    enrol(server, WORKER)
    with refused("forbidden") as caught:
        server.enrol_key(WORKER.public, role=role, name=name)
    assert caught.value.action == "Make a new key."


def test_a_revoked_key_stays_revoked(server: Ledger, clock: ManualClock):
    enrol(server, WORKER)
    clock.advance(5)
    ended = server.revoke_key(WORKER.key_id, actor="ada")
    assert ended.revoked_pos is not None and ended.enrolled_pos < ended.revoked_pos
    assert (ended.revoked_at, ended.revoked_by) == (clock.now(), "operator:ada")
    clock.advance(5)
    assert server.revoke_key(WORKER.key_id) == ended
    with refused("forbidden"):
        enrol(server, WORKER)
    assert server.keys()[-1] == ended
    assert sound(server)


def test_a_rotation_changes_both_keys_or_none(server: Ledger):
    enrol(server, WORKER)
    other = holdfast.draw_key("worker", "ignored")
    made = server.rotate_key(WORKER.key_id, other.public)
    assert (made.key_id, made.role, made.name) == (other.key_id, "worker", "arm-1")
    revoked_pos = server.keys()[1].revoked_pos
    assert revoked_pos is not None and revoked_pos > made.enrolled_pos
    assert server.rotate_key(WORKER.key_id, other.public) == made
    with refused("forbidden"):
        server.rotate_key(WORKER.key_id, holdfast.draw_key("worker", "arm-1").public)
    with refused("forbidden"):
        server.rotate_key(other.key_id, WORKER.public)
    assert len(log(server)) == 4
    assert sound(server)


def test_a_server_key_hands_over_to_the_next(server: Ledger, opened: Open):
    following = holdfast.draw_key("server", "main")
    ledger = opened(SERVER, following)
    ledger.rotate_key(SERVER.key_id, following.public)
    enrol(ledger, WORKER)
    assert [change.signer for change in log(ledger)] == [SERVER.key_id] * 2 + [following.key_id] * 2
    assert sound(ledger)


def test_the_last_server_key_is_not_revoked(server: Ledger, opened: Open):
    with refused("forbidden") as caught:
        server.revoke_key(SERVER.key_id)
    assert "Rotate it" in caught.value.action
    enrol(server, holdfast.draw_key("server", "second"))
    assert server.revoke_key(SERVER.key_id).revoked_pos is not None
    assert sound(server)


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.revoke_key("0123456789abcdef"),
        lambda ledger: ledger.rotate_key("0123456789abcdef", WORKER.public),
    ],
)
def test_an_unknown_key_is_not_found(server: Ledger, change: Any):
    with refused("not_found"):
        change(server)


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.enrol_key(SMALL_ORDER, role="worker", name="arm-1"),
        lambda ledger: ledger.enrol_key(bytes(32), role="worker", name="arm-1"),
        lambda ledger: ledger.enrol_key(WORKER.public.public[:31], role="worker", name="arm-1"),
        lambda ledger: ledger.enrol_key("xyz", role="worker", name="arm-1"),
        lambda ledger: ledger.enrol_key(7, role="worker", name="arm-1"),
        lambda ledger: ledger.enrol_key(WORKER.public, role="client", name="arm-1"),
        lambda ledger: ledger.enrol_key(WORKER.public, role="worker", name=""),
        lambda ledger: ledger.revoke_key(""),
        lambda ledger: ledger.rotate_key(SERVER.key_id, SERVER.public),
        lambda ledger: ledger.rotate_key(SERVER.key_id, SMALL_ORDER),
    ],
)
def test_values_that_are_not_keys_are_refused(server: Ledger, change: Any):
    with refused("validation_error"):
        change(server)
    assert len(server.keys()) == 1


def test_key_changes_and_events_have_one_total_order(server: Ledger):
    first = server.enqueue("report")
    made = enrol(server, WORKER)
    second = server.enqueue("report")
    [before], [after] = server.events(first.id), server.events(second.id)
    assert server.keys()[0].enrolled_pos < before.pos < made.enrolled_pos < after.pos
    assert [event.pos for event in server.events()] == [before.pos, after.pos]


def test_the_key_book_is_read_again_after_a_change(server: Ledger, opened: Open):
    other = opened()

    def current() -> Any:
        return other._pipeline.transact(other._books.current)

    book = current()
    assert book.last_change_pos == server.keys()[0].enrolled_pos
    assert current() is book
    made = enrol(server, WORKER)
    moved = current()
    assert moved.last_change_pos == made.enrolled_pos
    assert moved.valid(WORKER.key_id, "worker", "arm-1")
    assert moved.public_key(WORKER.key_id) == WORKER.public


def test_two_first_keys_enrolled_at_once_give_one_first_key(opened: Open):
    rivals = [holdfast.draw_key("server", name) for name in ("a", "b")]
    ledgers = [opened(key) for key in rivals]
    start = threading.Barrier(2)
    answers: list[Any] = [None, None]

    def race(number: int) -> None:
        start.wait()
        try:
            answers[number] = enrol(ledgers[number], rivals[number])
        except HoldfastError as error:
            answers[number] = error

    threads = [threading.Thread(target=race, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(answer).__name__ for answer in answers) == ["Forbidden", "KeyRecord"]
    assert len(ledgers[0].keys()) == 1
    assert sound(ledgers[0])
