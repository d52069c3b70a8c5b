"""The events of a job as its timeline reads them."""

from typing import NamedTuple

from holdfast.core.model import Micros

PREFIX_BYTES = 1_500
"""How much of the payload of a heartbeat is read. Its stage is at the beginning."""
TimelineBeat = tuple[int, Micros, bool, str | None, bytes | None]
"""A heartbeat: its revision and time, whether the job was stalled, the reason and the beginning of its payload. A plain one has
neither of the last two. Its actor is the holder."""


class TimelineEvent(NamedTuple):
    """An event that is not a heartbeat. Some types have their payload."""

    rev: int
    type: str
    received_at: Micros
    actor: str
    attempt: int
    to_status: str
    reason: str | None
    policy_id: int | None
    payload: bytes | None
