"""Heartbeats for everything a worker holds, and the deadlines of its handlers.

Heartbeats have a thread and a connection that nothing else uses: one batch for all leases that are due. Deadlines have a thread
of their own, which never talks to the ledger, and so keeps them whatever the ledger does.
"""

import threading
from collections.abc import Callable, Sequence

from holdfast.core.model import Policy, Status
from holdfast.errors import HoldfastError, SignatureInvalid, Unavailable
from holdfast.ledger import Beat, Ledger
from holdfast.worker.context import Context
from holdfast.worker.shift import Shift, log

LOOK_SECONDS = 0.25
"""How often leases are looked at while there are any."""
IDLE_LOOK_SECONDS = 1.0
NEWS_SECONDS = 0.5
"""Progress is told at most this often."""
TRY_AGAIN_SECONDS = 0.5
ANSWER_SECONDS_MIN, ANSWER_SECONDS_MAX = 1.0, 10.0
"""How long the answer to a heartbeat is waited for: half of what is left of the shortest lease, within these."""
GRACE_SECONDS = 5.0
"""How long a handler that was told to stop has until it is abandoned."""


def period(policy: Policy) -> float:
    """Seconds between beats: as the policy wants them, and never later than half of what would be missed."""
    return min(policy.heartbeat_interval_ms, policy.stall_after_ms / 2, policy.lease_ttl_ms / 2) / 1_000


class Beater:
    """`ledger` is for heartbeats alone: nothing else that the worker does can keep them waiting."""

    def __init__(self, shift: Shift, ledger: Ledger, doom: Callable[[Context], None]) -> None:
        """`doom` is told of an attempt whose lease is lost."""
        self._shift = shift
        self._ledger = ledger
        self._doom = doom
        self._closing = False
        self._told = float("-inf")
        self._unsigned = False
        self._locked: set[Context] = set()
        self._thread = threading.Thread(target=self._run, name="holdfast-beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        news = self._shift.news
        while not self._closing:
            news.wait(LOOK_SECONDS if self._shift.leases else None)
            news.clear()
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a worker without heartbeats would lose every job it has
                log.exception("a round of beats failed")

    def tick(self) -> None:
        """Send the heartbeats that are due. Jobs that were locked the last time go after the others, in a batch of their own."""
        now = self._shift.monotonic()
        tell = now - self._told >= NEWS_SECONDS
        due = [one for one in list(self._shift.leases.values()) if one.due <= now or (tell and one.has_news and not one.handed)]
        if due:
            self._told = now
            self._locked.intersection_update(self._shift.leases.values())
            self._ledger.patience = _answer_seconds(due, now)
            for batch in ([one for one in due if one not in self._locked], [one for one in due if one in self._locked]):
                if batch:
                    self._beat(batch, now)

    def _beat(self, due: Sequence[Context], now: float) -> None:
        news = [context.send_news() for context in due]
        try:
            answers = self._ledger.heartbeat_many(
                [(c.fence, told) if told else c.fence for c, told in zip(due, news, strict=True)], wait=False
            )
        except HoldfastError as error:
            answers = [error] * len(due)
        lost: list[Context] = []
        for context, told, answer in zip(due, news, answers, strict=True):
            self._note_locked(context, answer)
            if isinstance(answer, Unavailable | SignatureInvalid):
                # The job is still this worker's; the key that lacks may come, or another process has it.
                self._told_of(answer, context)
                context.heard(answer, now)
                context.due = now + TRY_AGAIN_SECONDS
                context.sent_news(again=True)
                continue
            context.sent_news(again=False)
            if context.handed and not isinstance(answer, Beat):
                # Its outcome was faster than this heartbeat, or will be refused for the same reason and say so.
                self._shift.forget(context)
                continue
            context.heard(answer, now, told)
            if isinstance(answer, Beat) and answer.status is Status.STALLED:
                self._come_back(context, now)
            if context.lost:
                self._shift.forget(context)
                self._doom(context)
                lost.append(context)
        for context in lost:
            self._shift.note_lost(context, "lease lost", self._ledger)

    def _note_locked(self, context: Context, answer: Beat | HoldfastError) -> None:
        facts = {"job_id": context.job.id, "attempt": context.job.attempt}
        if isinstance(answer, Unavailable) and answer.locked:
            if context not in self._locked:
                log.warning("heartbeats cannot be written: another transaction has locked the job", extra=facts)
            self._locked.add(context)
        elif context in self._locked:
            self._locked.discard(context)
            if isinstance(answer, Beat):
                log.info("the job is no longer locked: heartbeats are written again", extra=facts)

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

    def close(self) -> None:
        self._closing = True
        self._shift.news.set()
        self._thread.join()


def _answer_seconds(due: Sequence[Context], now: float) -> float:
    left = min(context.expires for context in due) - now
    return min(max(left / 2, ANSWER_SECONDS_MIN), ANSWER_SECONDS_MAX)


class Deadlines:
    """Times out attempts that take too long, and gives up on handlers that do not stop. It never waits for anything."""

    def __init__(self, shift: Shift, expire: Callable[[Context], None], abandon: Callable[[Context], None]) -> None:
        self._shift = shift
        self._expire = expire
        self._abandon = abandon
        self._doomed: dict[Context, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-deadlines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS if self._shift.leases or self._doomed else IDLE_LOOK_SECONDS):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a worker without deadlines would wait for stuck handlers for ever
                log.exception("a look at the deadlines failed")

    def tick(self) -> None:
        now = self._shift.monotonic()
        for context in list(self._shift.leases.values()):
            if context.deadline is not None and now >= context.deadline and not context.timed_out:
                self._expire(context)
                self.doom(context)
        for context, until in list(self._doomed.items()):
            if now >= until:
                del self._doomed[context]
                self._abandon(context)

    def doom(self, context: Context) -> None:
        """The handler was told to stop. It is abandoned if it does not."""
        self._doomed.setdefault(context, self._shift.monotonic() + GRACE_SECONDS)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
