"""The keeper of leases: heartbeats that are due, their fields, and leases that are lost."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.errors import HoldfastError, Unavailable
from holdfast.keeping.leases import FIELDS_SECONDS, RETRY_SECONDS, Fields, KeptLease, LeaseKeeper
from holdfast.ledger import Beat
from holdfast.testing import ManualClock
from tests.contract.builders import Made, running

PERIOD_S, TTL_S = 10.0, 60.0


class Lease(KeptLease):
    def __init__(self, job: Made, began: float) -> None:
        super().__init__(PERIOD_S, TTL_S, began)
        self.job = job

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"job_id": self.job.id}


class Keeper(LeaseKeeper[Lease]):
    """A keeper of jobs that the test has claimed. `error` is raised instead of the next heartbeats."""

    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        super().__init__(clock.monotonic)
        self.held: list[Lease] = []
        self.batches: list[list[int]] = []
        self.error: Exception | None = None
        self._ledger = ledger

    def hold(self) -> Lease:
        self.held.append(Lease(running(self._ledger), self.monotonic()))
        return self.held[-1]

    def leases(self) -> list[Lease]:
        return list(self.held)

    def send(self, beats: Sequence[tuple[Lease, Fields | None]], left_s: float) -> Sequence[Beat | HoldfastError]:
        self.batches.append([lease.job.id for lease, _ in beats])
        if self.error is not None:
            raise self.error
        return self._ledger.heartbeat_many([(lease.job.fence, fields or {}) for lease, fields in beats], wait=False)

    def forget(self, lease: Lease) -> None:
        self.held.remove(lease)


@pytest.fixture
def keeper(ledger: Ledger, clock: ManualClock) -> Keeper:
    return Keeper(ledger, clock)


def test_leases_that_are_due_share_a_batch(keeper: Keeper, clock: ManualClock) -> None:
    first, second = keeper.hold(), keeper.hold()
    clock.advance(PERIOD_S / 2)
    third = keeper.hold()
    keeper.tick()
    clock.advance(PERIOD_S / 2)
    keeper.tick()
    keeper.tick()
    assert keeper.batches == [[first.job.id, second.job.id]]
    assert (first.expires, third.expires) == (PERIOD_S + TTL_S, PERIOD_S / 2 + TTL_S)


def test_fields_are_sent_early_but_not_often(keeper: Keeper, ledger: Ledger, clock: ManualClock) -> None:
    lease = keeper.hold()
    for progress in (1, 2):
        lease.queue_fields({"progress": progress, "stage": "COUNT"})
        keeper.tick()
    found = ledger.get(lease.job.id)
    assert (found.progress, found.stage) == (1, "COUNT")
    clock.advance(FIELDS_SECONDS)
    keeper.tick()
    assert ledger.get(lease.job.id).progress == 2
    assert len(keeper.batches) == 2


@pytest.mark.parametrize("error", [Unavailable("gone"), RuntimeError("a mistake")])
def test_a_heartbeat_that_could_not_be_sent_is_sent_again_with_its_fields(
    keeper: Keeper, ledger: Ledger, clock: ManualClock, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.services")
    lease = keeper.hold()
    lease.queue_fields({"stage": "A", "progress": 1})
    keeper.error = error
    keeper.tick()
    assert (lease.expires, lease.is_sending, lease.lost) == (TTL_S, False, False)
    lease.queue_fields({"progress": 2})
    keeper.error = None
    clock.advance(RETRY_SECONDS)
    keeper.tick()
    found = ledger.get(lease.job.id)
    assert (found.stage, found.progress, lease.expires) == ("A", 2, RETRY_SECONDS + TTL_S)
    assert ("heartbeats: works again" in caplog.text) == isinstance(error, Unavailable)


def test_refused_fields_are_dropped_and_the_lease_is_renewed(keeper: Keeper, clock: ManualClock) -> None:
    lease = keeper.hold()
    lease.queue_fields({"progress": -1})
    clock.advance(PERIOD_S)
    keeper.tick()
    assert lease.expires == TTL_S
    clock.advance(RETRY_SECONDS)
    keeper.tick()
    assert lease.expires == PERIOD_S + RETRY_SECONDS + TTL_S


def test_a_lost_lease_is_forgotten_and_costs_no_other(
    keeper: Keeper, ledger: Ledger, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    lost, kept = keeper.hold(), keeper.hold()
    ledger.cancel(lost.job.id, hard=True)
    clock.advance(PERIOD_S)
    keeper.tick()
    assert (lost.lost, kept.lost, keeper.held) == (True, False, [kept])
    assert "lease lost" in caplog.text
    assert kept.expires == PERIOD_S + TTL_S


def test_a_heartbeat_after_the_outcome_loses_no_lease(keeper: Keeper, ledger: Ledger, clock: ManualClock) -> None:
    lease = keeper.hold()
    ledger.complete(lease.job.fence)
    lease.is_settling = True
    clock.advance(PERIOD_S)
    keeper.tick()
    assert (lease.lost, keeper.held) == (False, [])
