"""The liveness tick: finds what is due and sends it through the door like any other command.

Time is the ledger's. But when its clock and this process's monotonic one disagree about how long it was since the last tick,
the clock has stepped; and when the store was out of reach, beats could not get through. Then everyone gets one fresh interval.
Plain silence is neither.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.commands import Compensate, JobCommand, Sweep, Tell
from holdfast.core.limits import SWEEP_BATCH, SWEEP_MAX, UNDO_BATCH_MAX, check_integer
from holdfast.core.model import SYSTEM, Micros
from holdfast.errors import HoldfastError, SignatureInvalid, Unavailable
from holdfast.ledger.carry import Carrier
from holdfast.ledger.door import Call
from holdfast.store.base import Store

log = logging.getLogger("holdfast.sweep")


class Entropy(Protocol):
    """Where randomness comes from."""

    def token(self) -> str: ...
    def nonce(self) -> str: ...
    def jitter(self) -> float: ...


STEP_US = 2_000_000
"""A disagreement beyond this is a step. Clocks are slewed by less than a thousandth; ticks are seconds apart."""


UNSIGNED = "unsigned"
"""Under which name a tick counts what it left alone for want of a server key."""


class Sweeper:
    def __init__(self, store: Store, carrier: Carrier, entropy: Entropy, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._carrier = carrier
        self._entropy = entropy
        self._monotonic = monotonic
        self._last: tuple[Micros, float] | None = None
        self._cut_off = False
        self._told_unsigned = False
        self.fresh_since: Micros | None = None
        """The last step of the clock, or the end of the last outage, that this process has noticed."""

    def tick(self, limit: int) -> dict[str, int]:
        """Everything that is due for up to `limit` jobs; how many events of each type that made.

        Jobs whose events would have to be signed, with no server key here, are left alone and counted as `unsigned`.
        """
        check_integer("limit", limit, 1, SWEEP_MAX)
        try:
            return self._tick(limit)
        except Unavailable:
            self._cut_off = True
            raise

    def _tick(self, limit: int) -> dict[str, int]:
        """In bounded transactions: others get their turn in between. Where nothing is due, it costs two statements."""
        made: Counter[str] = Counter()
        after, done = 0, 0
        while done < limit:
            wanted = min(limit - done, SWEEP_BATCH)
            now, ids = self._due(after, wanted)
            if after == 0:
                self._notice_steps(now)
            if ids:
                done += self._sweep(ids, made)
                after = ids[-1]
            if len(ids) < wanted:
                break
        self._finish(min(limit, UNDO_BATCH_MAX), made)
        self._tell_unsigned(made[UNSIGNED])
        return dict(+made)

    def _due(self, after: int, limit: int) -> tuple[Micros, list[int]]:
        return self._store.peek(lambda session: session.due(after, limit))

    def _sweep(self, ids: Sequence[int], made: Counter[str]) -> int:
        """For how many of these jobs there was something to do."""
        request_id, fresh = self._entropy.nonce(), self.fresh_since
        sweeps = [
            Sweep(actor=SYSTEM, request_id=request_id, job_id=id_, jitter=self._entropy.jitter(), fresh_since=fresh)
            for id_ in ids
        ]
        return self._make(sweeps, made)

    def _finish(self, limit: int, made: Counter[str]) -> None:
        """What is due for finished jobs: ends that were too much for one transaction are told, undo steps that are owed begin."""
        owing, untold = self._left_over(limit)
        while untold and self._make([Tell(actor=SYSTEM, request_id=self._entropy.nonce(), job_id=id_) for id_ in untold], made):
            owing, untold = self._left_over(limit)
        request_id = self._entropy.nonce()
        if owing:
            self._make([Compensate(actor=SYSTEM, request_id=request_id, job_id=id_) for id_ in owing], made)

    def _left_over(self, limit: int) -> tuple[list[int], list[int]]:
        return self._store.peek(lambda session: session.left_over(limit))

    def _make(self, commands: Sequence[JobCommand], made: Counter[str]) -> int:
        """Count the events that each command made, and how many commands made any.

        A refusal means that it was due no longer; or that it would have to be signed, by a key that is not here.
        """
        answers = self._carrier.go(Call("sweep", commands, repeat=False, keep=False, body_hash=b"", patient=False))
        made[UNSIGNED] += sum(isinstance(answer, SignatureInvalid) for answer in answers)
        kinds = [answer for answer in answers if answer and not isinstance(answer, HoldfastError)]
        made.update(kind.value for some in kinds for kind in some)
        return len(kinds)

    def _tell_unsigned(self, count: int) -> None:
        if count and not self._told_unsigned:
            log.warning("%d jobs are left to a sweeper with a server key: what is due has to be signed", count)
        self._told_unsigned = self._told_unsigned or count > 0

    def _notice_steps(self, now: Micros) -> None:
        passed = self._monotonic()
        before, then = self._last or (now, passed)
        if self._cut_off or abs((now - before) - (passed - then) * 1_000_000) > STEP_US:
            self.fresh_since = now
        self._last, self._cut_off = (now, passed), False
