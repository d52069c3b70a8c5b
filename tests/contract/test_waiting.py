"""Who waits for a limit: counts of the jobs that wait for its keys, and since when."""

from datetime import timedelta

import pytest

from holdfast import Ledger
from holdfast.core import limits
from holdfast.errors import LimitExceeded, NotFound
from holdfast.testing import ManualClock


def limited(ledger: Ledger, clock: ManualClock) -> None:
    """One job of each of two tenants is held. Jobs of acme wait, the first of them for ten seconds."""
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    for tenant in ("acme", "zen"):
        ledger.enqueue("k", {"tenant": tenant}, limits=["api"])
    ledger.enqueue("k", {"tenant": "acme"}, limits=["api"])
    ledger.enqueue("k", {"tenant": "acme"}, limits=["api"], delay="1h")
    assert len(ledger.claim("w", limit=10)) == 2
    clock.advance(10)
    ledger.enqueue_many({"kind": "k", "args": {"tenant": "acme"}, "limits": ["api"], "priority": 5} for _ in range(3))
    assert ledger.claim("w", limit=10) == []


def test_a_key_tells_how_many_jobs_wait_for_it_and_since_when(ledger: Ledger, clock: ManualClock):
    limited(ledger, clock)
    acme, zen = ledger.limit_keys("api")
    assert (acme.key, acme.waiting, acme.waiting_since) == ("acme", 4, clock.now() - timedelta(seconds=10))
    assert (zen.key, zen.waiting, zen.waiting_since) == ("zen", 0, None)


def test_the_status_has_the_jobs_that_wait_for_each_limit(ledger: Ledger, clock: ManualClock):
    limited(ledger, clock)
    ledger.set_limit("mail", rate="60/1m", burst=1)
    ledger.set_limit("unused", concurrent=1)
    for _ in range(3):
        ledger.enqueue("send", queue="mail", limits=["mail"])
    assert len(ledger.claim("w", ["mail"], limit=10)) == 1
    found = {one.name: (one.waiting, one.waiting_since) for one in ledger.flow_status().limits}
    assert found == {"api": (4, clock.now() - timedelta(seconds=10)), "mail": (2, clock.now()), "unused": (0, None)}


def test_waiting_jobs_are_counted_up_to_a_bound(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    limited(ledger, clock)
    monkeypatch.setattr(limits, "LIMIT_WAITING_MAX", 2)
    assert [one.waiting for one in ledger.limit_keys("api")] == [2, 0]
    assert [one.waiting for one in ledger.flow_status().limits] == [2]


def test_jobs_of_a_limit_with_room_do_not_wait_for_it(ledger: Ledger, clock: ManualClock):
    limited(ledger, clock)
    ledger.set_limit("api", concurrent=9, by="args.tenant")
    assert [one.waiting for one in ledger.limit_keys("api")] == [0, 0]


def test_one_key_of_a_limit_is_shown(ledger: Ledger, clock: ManualClock):
    limited(ledger, clock)
    assert ledger.limit_keys("api", key="acme") == ledger.limit_keys("api")[:1]
    assert ledger.limit_keys("api", key="none") == []
    with pytest.raises(NotFound):
        ledger.limit_keys("none", key="acme")
    with pytest.raises(LimitExceeded):
        ledger.limit_keys("api", key="x" * 201)
