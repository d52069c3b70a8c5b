"""Verbs of a fleet: who does a duty, who is there, when to look for work again.

They touch no job and leave no event. Each is one statement, and doing it again does no harm, so none takes a request id.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import NEVER
from holdfast.errors import ValidationError
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk
from holdfast.ledger.face import WorkerRecord, public_worker


class Fleet(Desk):
    def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        """Whether `holder` performs this duty from now on, for `ttl` of ledger time. Taking it again renews it.

        False while another holder has it: until that one's time is over, or it has dropped the duty.
        """
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        ttl_us = policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.DUTY_MS_MAX) * 1_000
        return self._pipeline.run_statement(lambda session: session.take_duty(name, holder, ttl_us))

    def wants_sweeping(self, holder: str) -> bool:
        """Whether `holder` should take the duty to sweep: there are jobs to watch, and nobody else does. One statement."""
        limits.check_name("holder", holder)
        return self._sweeper.look(holder)

    def drop_duty(self, name: str, holder: str) -> None:
        """Others may take the duty at once. Nothing happens where another holder has it."""
        limits.check_name("name", name)
        limits.check_name("holder", holder)
        self._pipeline.run_statement(lambda session: session.drop_duty(name, holder))

    def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        """A worker is there; said again, it still is. `body` is what it tells of itself; without one, the last one stays."""
        who = admit.worker(worker, self.incarnation if incarnation is None else incarnation)
        text = None if body is None else _body(body)
        self._pipeline.run_statement(lambda session: session.sign_in(who.name, who.incarnation, text))

    def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        """The worker is gone, in good order."""
        who = admit.worker(worker, self.incarnation if incarnation is None else incarnation)
        self._pipeline.run_statement(lambda session: session.sign_out(who.name, who.incarnation))

    def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> list[WorkerRecord]:
        """Who has signed in and not out, by name: all, or those seen lately. Beyond `limit`, those seen last."""
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        within_us = None
        if seen_within is not None:
            within_us = policies.duration_ms("seen_within", seen_within, 0, admit.DELAY_MS_MAX) * 1_000
        found = self._store.peek(lambda session: session.workers(within_us, limit))
        return sorted(map(public_worker, found), key=lambda worker: (worker.name, worker.incarnation))

    def until_ready(self, queues: Sequence[str] = ("default",), *, kinds: Sequence[str] | None = None) -> float | None:
        """Seconds of ledger time until the first delayed job of these queues may be claimed; None where there is none.

        For whoever has just claimed and found nothing: jobs that were never delayed are not looked at, nor are paused queues, nor
        jobs that wait for others.
        0.0 where one may be claimed now; somebody else may have it by the time it is claimed.
        """
        names = admit.names("queues", queues)
        wanted = None if kinds is None else admit.names("kinds", kinds)
        now, ready = self._store.peek(lambda session: session.next_ready(names, wanted))
        return None if ready is None or ready == NEVER else max(0, ready - now) / 1_000_000


def _body(given: Any) -> str:
    if not isinstance(given, Mapping):
        raise ValidationError("body must be a mapping", field="body")
    return admit.json_value("body", dict(given), limits.WORKER_BYTES_MAX).decode()
