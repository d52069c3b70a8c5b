"""Which signed heartbeats the hot statement may record."""

import pytest

from holdfast.core.model import Actor, EventType, Policy, Role
from holdfast.proof.signing import is_plain_beat
from holdfast.proof.statements import Statement


@pytest.mark.parametrize(
    ("extra", "plain"),
    [({}, True), ({"reason": "x"}, False), ({"policy": Policy()}, False), ({"rev": 3}, False), ({"counter": 2**53 - 1}, False)],
)
def test_a_beat_that_states_more_is_decided_one_by_one(extra: dict[str, object], plain: bool):
    said = {"ledger": "l", "job_id": 7, "attempt": 1, "type": EventType.HEARTBEAT, "at": 100, "counter": 100}
    assert is_plain_beat(Statement(actor=Actor(Role.WORKER, "w-1", "boot"), **{**said, **extra})) == plain  # type: ignore[arg-type]
