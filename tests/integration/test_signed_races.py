"""Concurrent signed beats, and beats during the revocation of their key."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Fence, HoldfastError, Ledger
from tests.support.signers import ALL_KEYS, LIVENESS, SERVER, WORKER, enrol, key

BEATS = 25


@pytest.fixture
def signing(store_url: str) -> Iterator[Ledger]:
    with holdfast.open(store_url, keys=list(ALL_KEYS)) as ledger:
        enrol(ledger)
        yield ledger


def held(ledger: Ledger, count: int = 1) -> list[Fence]:
    ledger.enqueue_many([{"kind": "k", "policy": LIVENESS | {"lease_ttl": 600}}] * count)
    return [job.fence for job in ledger.claim("w-1", limit=count, start=True)]


def test_beats_of_one_worker_from_two_connections_all_succeed(signing: Ledger, store_url: str):
    """Each connection has its own counter.

    If the other one has signed a higher counter, the beat is signed again under the job's lock.
    """
    [fence] = held(signing)
    with holdfast.open(store_url, keys=[WORKER]) as other, ThreadPoolExecutor(4) as pool:
        ledgers = [signing, other] * 2
        list(pool.map(lambda ledger: [ledger.heartbeat(fence) for _ in range(BEATS)], ledgers))
    beats = signing.events(fence.job_id, types=["heartbeat"])
    assert (len(beats), {beat.key_id for beat in beats}) == (4 * BEATS, {WORKER.key_id})
    assert signing.check(fence.job_id) == []


def test_no_event_is_signed_by_a_key_after_its_revocation(signing: Ledger, store_url: str):
    """A key is revoked while beats arrive: each beat has an earlier position or is refused."""
    fences = held(signing, 20)
    refused: list[HoldfastError] = []
    begun = threading.Event()

    def beat(ledger: Ledger) -> None:
        while not refused:
            answers: list[Any] = ledger.heartbeat_many(fences)
            begun.set()
            refused.extend(answer for answer in answers if isinstance(answer, HoldfastError))

    with holdfast.open(store_url, keys=[WORKER]) as holder:
        thread = threading.Thread(target=beat, args=(holder,))
        thread.start()
        assert begun.wait(30)
        ended = signing.revoke_key(WORKER.key_id)
        thread.join(60)
    assert {error.code for error in refused} == {"signature_invalid"}
    assert ended.revoked_pos is not None
    for fence in fences:
        assert all(event.pos < ended.revoked_pos for event in signing.events(fence.job_id, types=["heartbeat"]))
        assert signing.check(fence.job_id) == []


def test_a_rotation_under_load_refuses_no_holder_of_both_keys(signing: Ledger, store_url: str):
    fences, fresh = held(signing, 20), key("worker", "w-1", 2)
    stop = threading.Event()
    refused: list[HoldfastError] = []

    def beat(ledger: Ledger) -> None:
        while not stop.is_set():
            refused.extend(answer for answer in ledger.heartbeat_many(fences) if isinstance(answer, HoldfastError))

    with holdfast.open(store_url, keys=[WORKER, fresh]) as holder, holdfast.open(store_url, keys=[SERVER]) as server:
        thread = threading.Thread(target=beat, args=(holder,))
        thread.start()
        server.rotate_key(WORKER.key_id, fresh.public)
        holder.heartbeat_many(fences)
        stop.set()
        thread.join(60)
    assert refused == []
    for fence in fences:
        assert signing.events(fence.job_id)[-1].key_id == fresh.key_id
        assert signing.check(fence.job_id) == []
