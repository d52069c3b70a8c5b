"""Group commit. Callers on many threads are combined: whoever finds the door free carries everybody's waiting calls through
in one transaction. No extra thread, no timer, no wait when idle.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.commands import Command, Heartbeat
from holdfast.core.lifecycle import Outcome
from holdfast.errors import HoldfastError, Unavailable

GROUP_MAX = 1_000
"""Commands in one transaction, unless a single call alone has more."""


class Call:
    """One caller's request: commands of one verb, and a place for their answers."""

    __slots__ = (
        "answers",
        "body_hash",
        "changed",
        "chunk",
        "commands",
        "done",
        "failure",
        "keep",
        "locked",
        "outcomes",
        "parked",
        "patient",
        "repeat",
        "said",
        "settled",
        "verb",
        "wakes",
    )

    def __init__(
        self, verb: str, commands: Sequence[Command], *, repeat: bool, keep: bool, body_hash: bytes, patient: bool = True
    ) -> None:
        self.verb = verb
        self.commands = commands
        self.repeat = repeat
        """The caller named the request id: it may have been answered before."""
        self.keep = keep
        """The answer is to be kept for a repetition."""
        self.body_hash = body_hash
        self.patient = patient
        """Wait some seconds for what another transaction has locked. A caller that tries again itself does not wait here."""
        self.said: Sequence[Heartbeat] = ()
        """Beats to record before the commands, in the same transaction. They have no answers: one that is refused is dropped."""
        self.answers: list[Any] = []
        self.chunk = 0
        """Which part of a long batch this is: each is answered, and kept, by itself."""
        self.changed = False
        """Something was written."""
        self.locked = False
        """Some of its commands were put off, because another transaction has locked what they need."""
        self.outcomes: list[Outcome] = []
        """What was written of commands that were decided one by one."""
        self.wakes: set[str] = set()
        """Queues that have new work, now or later, because of this call."""
        self.failure: BaseException | None = None
        self.settled = False
        """The transaction that made the answers was committed: only now are they true."""
        self.parked = threading.Lock()
        self.parked.acquire()
        self.done = False

    def wake(self) -> None:
        """Let the waiting caller go on, once or again."""
        if self.parked.locked():
            self.parked.release()

    def fail(self, error: Exception) -> None:
        """What befell the whole call. An unknown outcome comes with the id that will settle it, whoever drew it."""
        if isinstance(error, Unavailable) and error.retryable:
            told = Unavailable(error.message, outcome=error.outcome, locked=error.locked, request_id=self.commands[0].request_id)
            told.action = error.action
            error = told
        self.failure = error

    def outcome(self) -> list[Any]:
        if self.failure is not None:
            raise self.failure
        assert self.settled
        return self.answers


class Door:
    """One caller leads at a time. Wherever a caller is interrupted, it leaves the door in order: nobody is left waiting."""

    def __init__(self, carry: Callable[[list[Call]], None]) -> None:
        self._carry = carry
        self._mutex = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._leader: Call | None = None
        self._group: list[Call] = []
        """What the leader is carrying."""
        self._pid = os.getpid()

    def go(self, call: Call) -> list[Any]:
        """Answers for the call's commands, each a value or a refusal; raises what befell the call as a whole."""
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)
        try:
            with self._mutex:
                self._waiting.append(call)
                if self._leader is None:
                    self._leader = call
            if self._leader is not call:
                call.parked.acquire()
            if not call.done:
                self._lead()
        except BaseException as error:
            self._surely_leave(call, error)
            raise
        return call.outcome()

    def _lead(self) -> None:
        with self._mutex:
            self._group = self._next_group()
            for _ in self._group:
                self._waiting.popleft()
        try:
            self._carry(self._group)
        except HoldfastError as error:
            _fail(self._group, error)
        with self._mutex:
            self._finish()

    def _next_group(self) -> list[Call]:
        size = 0
        group: list[Call] = []
        for call in self._waiting:
            size += len(call.commands)
            if group and size > GROUP_MAX:
                break
            group.append(call)
        return group

    def _finish(self) -> None:
        """Let everybody go whose call was carried, and name the next leader; under the mutex.

        Each step may be the last before an interrupt and may be done again: so the next leader is woken before it is named,
        and its naming, which ends the old one's duty, comes last.
        """
        for call in self._group:
            call.done = True
            call.wake()
        self._group = []
        following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.wake()
        self._leader = following

    def _surely_leave(self, call: Call, error: BaseException) -> None:
        """Leaving may itself be interrupted; it is then begun again, until it is done."""
        while True:
            try:
                return self._leave(call, error)
            except BaseException as again:  # noqa: BLE001 - the first one is on its way to the caller
                error = again

    def _leave(self, call: Call, error: BaseException) -> None:
        """A caller was interrupted, wherever it stood. Whoever it carried does not know what became of its call."""
        with self._mutex:
            _fail(self._group if self._leader is call else [], _interrupted(error))
            for gone in (call, *(self._group if self._leader is call else [])):
                if gone in self._waiting:
                    self._waiting.remove(gone)
            if self._leader is call:
                self._finish()


def _interrupted(error: BaseException) -> Unavailable:
    return Unavailable(f"the carrying thread was interrupted: {error!r}", outcome="unknown")


def _fail(group: Sequence[Call], error: HoldfastError) -> None:
    for call in group:
        if not call.settled:
            call.fail(error)
