"""Group commit. Callers on many threads are combined: whoever finds the door free carries everybody's waiting calls through
in one transaction. No extra thread, no timer, no wait when idle.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.commands import Command
from holdfast.errors import HoldfastError, Unavailable

GROUP_MAX = 1_000
"""Commands in one transaction, unless a single call alone has more."""


class Call:
    """One caller's request: commands of one verb, and a place for their answers."""

    __slots__ = (
        "answers",
        "body_hash",
        "changed",
        "commands",
        "done",
        "failure",
        "keep",
        "leads",
        "parked",
        "repeat",
        "settled",
        "verb",
        "wakes",
    )

    def __init__(self, verb: str, commands: Sequence[Command], *, repeat: bool, keep: bool, body_hash: bytes) -> None:
        self.verb = verb
        self.commands = commands
        self.repeat = repeat
        """The caller named the request id: it may have been answered before."""
        self.keep = keep
        """The answer is to be kept for a repetition."""
        self.body_hash = body_hash
        self.answers: list[Any] = []
        self.changed = False
        """Something was written."""
        self.wakes: set[str] = set()
        """Queues that have new work because of this call."""
        self.failure: BaseException | None = None
        self.settled = False
        """The transaction that made the answers was committed: only now are they true."""
        self.parked = threading.Lock()
        self.done = False
        self.leads = False

    def fail(self, error: Exception) -> None:
        """What befell the whole call. An unknown outcome comes with the id that will settle it, whoever drew it."""
        if isinstance(error, Unavailable):
            error = Unavailable(error.message, outcome=error.outcome, request_id=self.commands[0].request_id)
        self.failure = error

    def outcome(self) -> list[Any]:
        if self.failure is not None:
            raise self.failure
        assert self.settled
        return self.answers


class Door:
    def __init__(self, carry: Callable[[list[Call]], None]) -> None:
        self._carry = carry
        self._mutex = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._busy = False
        self._pid = os.getpid()

    def go(self, call: Call) -> list[Any]:
        """Answers for the call's commands, each a value or a refusal; raises what befell the call as a whole."""
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child")
        with self._mutex:
            if self._busy:
                call.parked.acquire()
                self._waiting.append(call)
            else:
                self._busy = call.leads = True
                self._waiting.appendleft(call)
        if not call.leads:
            self._park(call)
        if not call.done:
            self._lead()
        return call.outcome()

    def _park(self, call: Call) -> None:
        """Wait until a leader has answered or named this caller the next leader."""
        try:
            call.parked.acquire()
        except BaseException:
            with self._mutex:
                if call in self._waiting:
                    self._waiting.remove(call)
                if call.leads and not call.done:
                    self._hand_on()
            raise

    def _lead(self) -> None:
        group: list[Call] = []
        try:
            with self._mutex:
                size = 0
                while self._waiting and (not group or size + len(self._waiting[0].commands) <= GROUP_MAX):
                    group.append(self._waiting.popleft())
                    size += len(group[-1].commands)
            self._carry(group)
        except HoldfastError as error:
            _fail(group, error)
        except BaseException as error:
            _fail(group, Unavailable(f"the carrying thread was interrupted: {error!r}", outcome="unknown"))
            raise
        finally:
            with self._mutex:
                for call in group:
                    call.done = True
                    if call.parked.locked():
                        call.parked.release()
                self._hand_on()

    def _hand_on(self) -> None:
        """Name the next leader; under the mutex."""
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].parked.release()
        else:
            self._busy = False


def _fail(group: Sequence[Call], error: HoldfastError) -> None:
    for call in group:
        if not call.settled:
            call.fail(error)
