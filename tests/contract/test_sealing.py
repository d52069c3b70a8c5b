"""The sealed log: everything in one tree, heads that can be checked independently, and a tree that is not continued if
it was changed."""

import json
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256

import pytest

import holdfast
from holdfast import Ledger
from holdfast.errors import Forbidden, LimitExceeded, NotFound, SealBroken
from holdfast.ledger.verbs.proofs import tile_reader
from holdfast.proof import tiles
from holdfast.proof.keys import KeyFile
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.contract import builders
from tests.support import auditor
from tests.support.duties import GrantEveryDuty
from tests.support.sealing import check_sealed, drawn, enrol, expected_leaves, hashes, positions, tamper

SERVER = drawn()


@pytest.fixture
def ledger(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """A ledger with an enrolled server key."""
    with holdfast.open(store_url, clock=clock, keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        yield ledger


def everything(ledger: Ledger, clock: ManualClock) -> None:
    """Write events of many types."""
    ledger.enqueue("ship", {"to": "Zoë"}, correlation_id="order-7", trace_id="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    done = builders.running(ledger)
    ledger.heartbeat(done.fence, stage="FETCH", progress=1)
    ledger.complete(done.fence, {"ok": True})
    lost = builders.running(ledger)
    ledger.fail(lost.fence, "no \u2028 luck \x7f", retryable=True)
    builders.aborting(ledger)
    clock.advance(1_000)
    ledger.sweep()


def seal(ledger: Ledger) -> int:
    """Seal all events and return their number."""
    with Sealer(ledger) as sealer:
        done = sealer.seal_all()
    assert done is not None
    return done.sealed


def test_all_events_are_sealed_and_can_be_checked_by_an_auditor(ledger: Ledger, clock: ManualClock):
    everything(ledger, clock)
    assert seal(ledger) == len(expected_leaves(ledger))
    check_sealed(ledger, SERVER)


def test_a_job_can_be_proved_with_the_head_alone(ledger: Ledger, clock: ManualClock):
    everything(ledger, clock)
    seal(ledger)
    made = builders.running(ledger)
    seal(ledger)
    ledger.heartbeat(made.fence)
    found = ledger.inclusion(made.id)
    assert [proven.event.type for proven in found.events] == ["enqueued", "claimed", "started"]
    assert found.unsealed == 1
    assert auditor.read_head(found.head.note, SERVER.public.public)[1:] == (found.head.size, found.head.root)
    for proven in found.events:
        assert auditor.is_included(proven.leaf, proven.index, found.head.size, proven.proof, found.head.root)
        text = proven.sealed_payload
        assert (None if text is None else sha256(text.encode()).hexdigest()) == json.loads(proven.leaf)[15]


def test_jobs_that_are_not_sealed_have_no_proof(ledger: Ledger):
    made = builders.queued(ledger)
    for job_id in (made.id, made.id + 1):
        with pytest.raises(NotFound):
            ledger.inclusion(job_id)


def test_without_new_events_there_is_no_new_head(ledger: Ledger):
    assert ledger.head() is None
    assert (seal(ledger), seal(ledger)) == (1, 0)
    assert ledger.heads() == [ledger.head()]


def test_a_sealer_continues_where_another_ended(ledger: Ledger):
    """Also across tiles. The tree of each head begins with the tree of the head before."""
    for count in (200, 55, 1, 1, 300, 256):
        ledger.enqueue_many([{"kind": "index"}] * count)
        assert seal(ledger) in (count, count + 1)
    check_sealed(ledger, SERVER)
    heads, tile = ledger.heads(), tile_reader(lambda *at: ledger.sealed_log.read(lambda session: session.tile(*at)))
    assert [tiles.frontier(tile, head.size).root() for head in heads] == [head.root for head in heads]
    assert ledger.heads(after=heads[1].size, limit=2) == heads[2:4]


def test_one_sealer_works_at_a_time(ledger: Ledger):
    with Sealer(ledger) as first, Sealer(ledger) as second:
        assert first.tick() is not None
        assert second.tick() is None
        first.close()
        assert second.tick() is None, "it has asked a moment ago"
    with Sealer(ledger) as third:
        assert third.tick() is not None


def test_two_sealers_at_once_never_fork_the_tree(ledger: Ledger):
    first, second = Sealer(ledger, duties=GrantEveryDuty()), Sealer(ledger, duties=GrantEveryDuty())
    for sealer in (first, second, second, first, first, second):
        ledger.enqueue_many([{"kind": "index"}] * 100)
        done = sealer.tick()
        assert done is not None
        if not done.sealed:
            assert done.more, "the other one was quicker: it begins again"
            sealer.tick()
    check_sealed(ledger, SERVER)


# Keys


def test_changes_of_keys_are_leaves(ledger: Ledger):
    worker = drawn("worker", "arm-1")
    ledger.enqueue("index")
    enrol(ledger, worker)
    ledger.enqueue("index")
    ledger.revoke_key(worker.key_id)
    seal(ledger)
    assert [leaf[:8] for leaf in expected_leaves(ledger)] == [b'["key",1', b'["event"', b'["key",1', b'["event"', b'["key",1']
    check_sealed(ledger, SERVER)


def test_after_a_rotation_the_new_key_signs(store_url: str, clock: ManualClock, ledger: Ledger):
    seal(ledger)
    fresh = drawn()
    ledger.enqueue("index")
    ledger.rotate_key(SERVER.key_id, fresh.public)
    ledger.enqueue("index")
    with pytest.raises(Forbidden):
        seal(ledger)
    with holdfast.open(store_url, clock=clock, keys=[fresh, SERVER]) as both:
        seal(both)
        check_sealed(both, SERVER, fresh)
        assert auditor.read_head(both.heads()[-1].note, fresh.public.public)


@pytest.mark.parametrize("keys", [[], [drawn()], [drawn("worker", "arm-1")]], ids=["none", "not enrolled", "a worker's"])
def test_only_an_enrolled_key_of_a_server_seals(store_url: str, clock: ManualClock, ledger: Ledger, keys: list[KeyFile]):
    for key in keys:
        if key.role == "worker":
            enrol(ledger, key)
    with holdfast.open(store_url, clock=clock, keys=keys) as other, pytest.raises(Forbidden):
        seal(other)
    assert ledger.head() is None


# Tampering

MUTATIONS = {
    "a hash in a tile": "UPDATE {tiles} SET hashes = positions WHERE level = 0 AND number = 1",
    "a hash in a full tile": "UPDATE {tiles} SET hashes = (SELECT hashes FROM {tiles} WHERE level = 0 AND number = 2) "
    "WHERE level = 0 AND number = 1",
    "a node": "DELETE FROM {tiles} WHERE level = 1",
    "the last tile": "DELETE FROM {tiles} WHERE level = 0 AND number = 2",
    "the positions": "UPDATE {tiles} SET positions = NULL WHERE level = 0 AND number = 2",
    "the newest head": "DELETE FROM {heads} WHERE size > 300",
    "all heads": "DELETE FROM {heads}",
    "a head's size": "UPDATE {heads} SET size = size - 1 WHERE size > 300",
    "a head's position": "UPDATE {heads} SET pos = pos - 1 WHERE size > 300",
    "a head's note": "UPDATE {heads} SET note = (SELECT note FROM {heads} WHERE size < 300) WHERE size > 300",
    "no note at all": "UPDATE {heads} SET note = 'trust me' WHERE size > 300",
    "an event": "UPDATE {events} SET actor = 'client:mallory' WHERE job_id = 500",
    "an event's revision": "UPDATE {events} SET rev = rev + 1 WHERE job_id = 590",
    "a key": "UPDATE {key_log} SET name = 'mallory'",
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_nothing_is_added_to_a_tree_that_was_tampered_with(store_url: str, ledger: Ledger, what: str):
    for count in (200, 400):
        ledger.enqueue_many([{"kind": "index"}] * count)
        seal(ledger)
    tamper(store_url, MUTATIONS[what])
    ledger.enqueue("index")
    before = ledger.heads()
    with pytest.raises(SealBroken):
        seal(ledger)
    assert ledger.heads() == before


def test_an_event_inserted_below_the_sealed_position_is_noticed(store_url: str, ledger: Ledger):
    job = ledger.enqueue("index")
    builders.queued(ledger)
    seal(ledger)
    tamper(store_url, f"UPDATE {{events}} SET pos = pos + 10000 WHERE job_id > {job.id}")
    tamper(store_url, f"UPDATE {{events}} SET pos = pos + 1 WHERE job_id = {job.id}")
    with pytest.raises(SealBroken):
        seal(ledger)


# Retention


def test_unsealed_events_are_not_pruned(ledger: Ledger, clock: ManualClock):
    seal(ledger)
    made = builders.running(ledger)
    for number in range(3):
        ledger.heartbeat(made.fence, progress=number)
    ledger.complete(made.fence)
    clock.advance(10)
    assert ledger.prune(jobs_before=clock.now(), beats_before=clock.now()) == {"jobs": 0, "beats": 0}
    seal(ledger)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 2}
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 1}


def test_without_a_sealer_retention_does_not_wait(ledger: Ledger, clock: ManualClock):
    ledger.cancel(builders.queued(ledger).id)
    assert ledger.prune(jobs_before=clock.now() + timedelta(seconds=1)) == {"jobs": 1}


def test_a_pruned_beat_keeps_its_leaf(ledger: Ledger, clock: ManualClock):
    made = builders.running(ledger)
    for number in range(3):
        ledger.heartbeat(made.fence, progress=number)
    seal(ledger)
    before = [(proven.leaf, proven.index) for proven in ledger.inclusion(made.id).events]
    ledger.prune(beats_before=clock.now() + timedelta(seconds=1))
    assert [(proven.leaf, proven.index) for proven in ledger.inclusion(made.id).events] == before
    ledger.enqueue("index")
    assert seal(ledger) == 1


def test_a_heartbeat_pruned_before_sealing_is_sealed_by_its_hash(ledger: Ledger, clock: ManualClock):
    made = builders.running(ledger)
    for number in range(3):
        ledger.heartbeat(made.fence, progress=number)
    leaves = expected_leaves(ledger)
    ledger.prune(beats_before=clock.now() + timedelta(seconds=1))
    seal(ledger)
    assert hashes(ledger) == [auditor.leaf_hash(leaf) for leaf in leaves]


def test_a_pruned_job_stays_in_the_tree(ledger: Ledger, clock: ManualClock):
    made = builders.queued(ledger)
    ledger.cancel(made.id)
    seal(ledger)
    proven = ledger.inclusion(made.id)
    ledger.prune(jobs_before=clock.now() + timedelta(seconds=1))
    builders.queued(ledger)
    assert seal(ledger) == 1
    head = ledger.head()
    assert head is not None
    tile = tile_reader(lambda *at: ledger.sealed_log.read(lambda session: session.tile(*at)))
    for kept in proven.events:
        proof = tiles.inclusion_proof(tile, kept.index, head.size)
        assert auditor.is_included(kept.leaf, kept.index, head.size, proof, head.root)


# Settings


@pytest.mark.parametrize("given", [{"every": 0}, {"every": "2h"}, {"every_events": 0}, {"anchor_every": "2d"}])
def test_settings_have_limits(ledger: Ledger, given: dict[str, object]):
    with pytest.raises((LimitExceeded, holdfast.ValidationError)):
        Sealer(ledger, **given)  # type: ignore[arg-type]


def test_every_leaf_has_its_position(ledger: Ledger, clock: ManualClock):
    everything(ledger, clock)
    seal(ledger)
    assert positions(ledger) == sorted(set(positions(ledger)))
    assert len(positions(ledger)) == len(hashes(ledger))
