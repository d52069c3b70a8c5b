"""Proof of life for everything a worker holds: one thread, a connection of its own, one batch for all leases that are due."""

import threading
from collections.abc import Callable, Sequence

from holdfast.core.model import Policy, Status
from holdfast.errors import HoldfastError, SignatureInvalid, Unavailable
from holdfast.ledger import Beat, Ledger
from holdfast.worker.context import Context
from holdfast.worker.shift import Shift, log

LOOK_SECONDS = 0.25
"""How often leases are looked at while there are any."""
NEWS_SECONDS = 0.5
"""Progress is told at most this often."""
TRY_AGAIN_SECONDS = 0.5
GRACE_SECONDS = 5.0
"""How long a handler that was told to stop has until it is abandoned."""


def period(policy: Policy) -> float:
    """Seconds between beats: as the policy wants them, and never later than half of what would be missed."""
    return min(policy.heartbeat_interval_ms, policy.stall_after_ms / 2, policy.lease_ttl_ms / 2) / 1_000


class Beater:
    """`ledger` is the beats' own: a batch of completions must not keep them waiting."""

    def __init__(
        self, shift: Shift, ledger: Ledger, expire: Callable[[Context], None], abandon: Callable[[Context], None]
    ) -> None:
        self._shift = shift
        self._ledger = ledger
        self._expire = expire
        self._abandon = abandon
        self._doomed: dict[Context, float] = {}
        self._closing = False
        self._told = float("-inf")
        self._unsigned = False
        self._thread = threading.Thread(target=self._run, name="holdfast-beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        news = self._shift.news
        while not self._closing:
            news.wait(LOOK_SECONDS if self._shift.leases or self._doomed else None)
            news.clear()
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a worker without beats would lose every job it has
                log.exception("a round of beats failed")

    def tick(self) -> None:
        """Beat for what is due, time out what took too long, abandon what does not stop."""
        now = self._shift.monotonic()
        tell = now - self._told >= NEWS_SECONDS
        due = []
        for context in list(self._shift.leases.values()):
            if context.due <= now or (tell and context.has_news):
                due.append(context)
            if context.deadline is not None and now >= context.deadline and not context.timed_out:
                self._expire(context)
                self.doom(context)
        if due:
            self._told = now
            self._beat(due, now)
        for context, until in list(self._doomed.items()):
            if now >= until:
                del self._doomed[context]
                self._abandon(context)

    def _beat(self, due: Sequence[Context], now: float) -> None:
        news = [context.take_news() for context in due]
        try:
            answers = self._ledger.heartbeat_many(
                [(c.fence, told) if told else c.fence for c, told in zip(due, news, strict=True)]
            )
        except HoldfastError as error:
            answers = [error] * len(due)
        for context, told, answer in zip(due, news, answers, strict=True):
            if isinstance(answer, Unavailable | SignatureInvalid):
                # The job is still this worker's; the key that lacks may come, or another process has it.
                self._told_of(answer, context)
                context.heard(answer, now)
                context.due = now + TRY_AGAIN_SECONDS
                if told and not context.has_news:
                    context.tell(told)
                continue
            context.heard(answer, now, told)
            if isinstance(answer, Beat) and answer.status is Status.STALLED:
                self._come_back(context, now)
            if context.lost:
                self._shift.forget(context)
                self.doom(context)
                log.warning("lease lost", extra={"job_id": context.job.id, "attempt": context.job.attempt})

    def _told_of(self, answer: HoldfastError, context: Context) -> None:
        """Once, until a beat is accepted again."""
        if isinstance(answer, SignatureInvalid) and not self._unsigned:
            facts = {"job_id": context.job.id, "attempt": context.job.attempt, "error": answer.message}
            log.error("beats are refused for want of a signature", extra=facts)
        self._unsigned = isinstance(answer, SignatureInvalid)

    def _come_back(self, context: Context, now: float) -> None:
        """Somebody called this attempt stalled; it is not, and nobody else has its job yet."""
        try:
            back = self._ledger.resume(context.fence)
        except (Unavailable, SignatureInvalid):
            context.due = now + TRY_AGAIN_SECONDS
        except HoldfastError as error:
            context.heard(error, now)
        else:
            context.came_back(back, now)

    def doom(self, context: Context) -> None:
        self._doomed.setdefault(context, self._shift.monotonic() + GRACE_SECONDS)

    def close(self) -> None:
        self._closing = True
        self._shift.news.set()
        self._thread.join()
