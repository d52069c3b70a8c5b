"""The audit finds stalls that were changed in the database."""

import msgspec
import pytest

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import WINDOW, running
from tests.support.sealing import tamper

KEPT = ["last_beat_at", "lease_expires_at"]


@pytest.mark.parametrize(
    ("names", "rule"),
    [(["holder", "incarnation", *KEPT, "detected_at"], "reason"), (KEPT, "payload")],
    ids=["whole", "without holder, incarnation and time of detection"],
)
def test_a_stall_with_a_forged_reason_is_found(
    ledger: Ledger, clock: ManualClock, store_url: str, names: list[str], rule: str
) -> None:
    made = running(ledger, policy=WINDOW)
    clock.advance(31)
    ledger.sweep()
    stalled = ledger.events(made.id)[-1]
    assert (stalled.type, stalled.reason, ledger.check(made.id)) == ("stalled", "NO_HEARTBEAT", [])
    body = msgspec.json.encode({name: stalled.payload[name] for name in names}).decode()
    stored = f"CAST('{body}' AS BLOB)" if store_url.startswith("sqlite") else f"convert_to('{body}', 'UTF8')"

    tamper(store_url, f"UPDATE {{events}} SET reason = 'LEASE_EXPIRED', payload = {stored} WHERE type = 'stalled'")
    tamper(store_url, "UPDATE {jobs} SET stall_reason = 'LEASE_EXPIRED'")

    assert [(found.rev, found.rule) for found in ledger.check(made.id)] == [(stalled.rev, rule)]
