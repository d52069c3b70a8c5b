"""Claiming: which kinds, how many, from which queues, and how to wait when there is nothing."""

import contextlib
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.model import UNDO_KIND, Policy
from holdfast.errors import HoldfastError
from holdfast.ledger import Job
from holdfast.services.outage import Outage
from holdfast.store.base import Waiter
from holdfast.worker import beats
from holdfast.worker.context import Context
from holdfast.worker.crews import Crew
from holdfast.worker.handlers import Handler
from holdfast.worker.shift import Shift, log

SLICE_SECONDS = 0.25
"""A wait is cut into these, so that a worker told to stop does."""
LOOK_SECONDS = 30.0
"""How often an idle worker looks for itself, should a bell have been lost."""
PAUSE_SECONDS = 0.02
BREATH_SECONDS = 0.001
"""After a claim that emptied the queues: what it found begins first. The interpreter runs one thread at a time."""
TRY_AGAIN_SECONDS = 1.0
BATCH_MAX = 500
"""Jobs of one claim; more than these come in several, so that the first of them are begun meanwhile."""
WEIGHTED_MAX = 50
"""Jobs of one claim where queues have weights: the weights show only over many claims."""
UNANSWERED_LOOK_SECONDS = 1.0
"""How often to look for jobs of a claim whose answer was lost."""
STALE_SECONDS = 1.0
"""What could not begin for so long is handed back."""


class Group(NamedTuple):
    """Kinds that are claimed together: one crew, one limit, started at once or checked first."""

    crew: Crew
    kinds: tuple[str, ...]
    limit: int | None
    start: bool
    guest: Crew | None = None
    """Whose undo jobs are, where they are claimed along with kinds of another crew."""


def groups(handlers: Sequence[Handler], crews: Mapping[str, Crew], queues: Sequence[str]) -> list[Group]:
    """What a worker that serves these queues claims. A kind with a limit of its own is claimed by itself."""
    shared: dict[tuple[str, bool], list[str]] = {}
    found: list[Group] = []
    for handler in handlers:
        start = not handler.checks
        if handler.concurrency is not None:
            found.append(Group(crews[handler.isolation], (handler.kind,), handler.concurrency, start))
        else:
            shared.setdefault((handler.isolation, start), []).append(handler.kind)
    for (isolation, start), kinds in shared.items():
        found.append(Group(crews[isolation], tuple(kinds), None, start))
    return _undo_along(found)


def _undo_along(groups: list[Group]) -> list[Group]:
    """Undo jobs are claimed along with others: a claim for so rare a kind alone would look at everything that is ready."""
    alone = [group for group in groups if group.kinds == (UNDO_KIND,)]
    hosts = sorted((group for group in groups if group.kinds != (UNDO_KIND,)), key=lambda group: group.limit is not None)
    if not alone or not hosts:
        return groups
    return [hosts[0]._replace(kinds=(*hosts[0].kinds, UNDO_KIND), guest=alone[0].crew), *hosts[1:]]


class Order:
    """The queues in the order a claim is to look at them: as listed, or drawn by weight."""

    def __init__(self, queues: Sequence[str] | Mapping[str, int], draw: Callable[[], float] = random.random) -> None:
        self._weights = dict(queues) if isinstance(queues, Mapping) else None
        self._names = list(queues)
        self._draw = draw
        self.most = BATCH_MAX if self._weights is None else WEIGHTED_MAX

    def next(self) -> list[str]:
        """By weight: each queue comes first as often as its share says, and those after it likewise (Efraimidis–Spirakis)."""
        if self._weights is None:
            return self._names
        weights = self._weights
        return sorted(self._names, key=lambda name: self._draw() ** (1.0 / weights[name]), reverse=True)


class Intake:
    def __init__(self, shift: Shift, groups: Sequence[Group], order: Order, release: Callable[[Context], None]) -> None:
        self._shift = shift
        self._groups = groups
        self._order = order
        self._release = release
        self._kinds = tuple(kind for group in groups for kind in group.kinds)
        self._room = threading.Event()
        self._hungry = False
        self._outage = Outage(log, "claim")
        self._looked = float("-inf")
        """When it last looked for jobs of claims whose answers were lost."""
        self._policy: Policy | None = None
        self._timing = (0.0, 0.0)
        """Of the policy last seen: jobs mostly share it."""
        self._thread = threading.Thread(target=self._run, name="holdfast-intake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def freed(self) -> None:
        """A crew has room."""
        if self._hungry:
            # Told once: until the claiming thread gets its turn, others may be freed by the hundred.
            self._hungry = False
            self._room.set()

    def join(self) -> None:
        self._room.set()
        self._thread.join()

    # Waiting and claiming

    def _run(self) -> None:
        while not self._shift.stopping.is_set():
            try:
                self._listen()
            except HoldfastError as error:
                self._outage.began(error)
            except Exception:  # noqa: BLE001 - a worker that claims no more must not look alive
                log.exception("a round of claims failed")
            self._shift.stopping.wait(TRY_AGAIN_SECONDS)
        with contextlib.suppress(HoldfastError):
            self._take_unanswered()

    def _listen(self) -> None:
        bell = self._shift.ledger.waiter()
        try:
            while not self._shift.stopping.is_set():
                self._turn(bell)
        finally:
            bell.close()

    def _turn(self, bell: Waiter) -> None:
        self._room.clear()
        self._hungry = True
        if self._shift.ledger.has_unanswered and self._shift.monotonic() >= self._looked + UNANSWERED_LOOK_SECONDS:
            self._take_unanswered()
        wants = [(group, want) for group in self._groups if (want := self._want(group)) > 0]
        if not wants:
            if not self._room.wait(STALE_SECONDS):
                self._hand_back()
            return
        self._hand_back()
        # Whoever had no room wants to hear of it while the others are claimed for.
        self._hungry = len(wants) < len(self._groups)
        found = emptied = 0
        for group, want in wants:
            if self._shift.stopping.is_set():
                return
            claimed = self._claim(group, want)
            found += claimed
            emptied += claimed < want
        self._outage.over()
        if not found:
            self._idle(bell, full=len(wants) < len(self._groups))
        elif emptied == len(wants):
            self._shift.stopping.wait(BREATH_SECONDS)

    def _want(self, group: Group) -> int:
        """How many to ask for: a full batch or none, so that claims do not come in dribbles."""
        crew, held = group.crew, group.crew.held()
        ahead = crew.ahead() if group.limit is None else min(0, crew.ahead())
        crew.low = ahead // 2
        room = crew.size + ahead - held
        if group.limit is not None:
            room = min(room, group.limit - self._held_of(group))
        elif held > crew.size and room < ahead // 2:
            return 0
        return min(room, self._order.most)

    def _claim(self, group: Group, want: int) -> int:
        shift = self._shift
        asked = shift.monotonic()
        jobs = shift.ledger.claim(shift.name, self._order.next(), limit=want, kinds=group.kinds, start=group.start, keep=False)
        if jobs:
            contexts = [self._context(job, asked) for job in jobs]
            shift.hold(*contexts)
            if group.start:
                shift.note_started(contexts)
            self._give(group, contexts)
        return len(jobs)

    def _give(self, group: Group, contexts: list[Context]) -> None:
        if group.guest is not None:
            group.guest.give([context for context in contexts if context.job.kind == UNDO_KIND])
            contexts = [context for context in contexts if context.job.kind != UNDO_KIND]
        group.crew.give(contexts)

    def _take_unanswered(self) -> None:
        """Run the jobs of claims whose answers were lost; hand back those there is no room for any more.

        Only this thread claims, and the ledger returns such a job once: none of them can have been given to a handler before.
        """
        shift = self._shift
        self._looked = asked = shift.monotonic()
        jobs = shift.ledger.unanswered(shift.name)
        if not jobs:
            return
        now = shift.ledger.now()
        log.info("found jobs of a claim whose answer was lost", extra={"worker": shift.name, "jobs": len(jobs)})
        for job in jobs:
            assert job.last_heartbeat_at is not None
            context = self._context(job, asked - (now - job.last_heartbeat_at).total_seconds())
            # Beat at once: that renews the lease, and tells whether the job was cancelled meanwhile.
            context.due = asked
            group = next(group for group in self._groups if job.kind in group.kinds)
            has_room = group.limit is None or self._held_of(group) < group.limit
            shift.hold(context)
            if has_room and not shift.stopping.is_set():
                self._give(group, [context])
            else:
                self._release(context)

    def _held_of(self, group: Group) -> int:
        """How many jobs of a kind with a limit this worker holds."""
        return sum(1 for context in list(self._shift.leases.values()) if context.job.kind == group.kinds[0])

    def _context(self, job: Job, asked: float) -> Context:
        record = job.record
        handler, policy = self._shift.served[record.kind], record.policy
        assert policy is not None
        if policy is not self._policy:
            self._policy, self._timing = policy, (beats.period(policy), policy.lease_ttl_ms / 1_000)
        return handler.context_type(job, handler, self._shift, *self._timing, asked)

    def _idle(self, bell: Waiter, *, full: bool) -> None:
        """Until a bell rings, a delayed job is due, or a crew that was `full` has room again."""
        shift = self._shift
        until = shift.ledger.until_ready(self._order.next(), kinds=self._kinds)
        # A job that is ready and was not claimed is somebody else's for the moment.
        longest = UNANSWERED_LOOK_SECONDS if shift.ledger.has_unanswered else LOOK_SECONDS
        left = longest if until is None else min(max(until, PAUSE_SECONDS), longest)
        deadline = shift.monotonic() + left
        while not shift.stopping.is_set() and not self._room.is_set():
            self._hand_back()
            left = deadline - shift.monotonic()
            if left <= 0 or self._rang(bell, left, full):
                return

    def _rang(self, bell: Waiter, seconds: float, full: bool) -> bool:
        """Nothing can wait for both room and bell. Room comes more often: the bell is only looked at in between."""
        if not full:
            return bell.wait(min(seconds, SLICE_SECONDS))
        return not self._room.wait(min(seconds, PAUSE_SECONDS)) and bell.wait(BREATH_SECONDS)

    def _hand_back(self) -> None:
        """Where all hands of a crew are busy, what waits for them may be run elsewhere."""
        oldest = self._shift.monotonic() - STALE_SECONDS
        for group in self._groups:
            if group.crew.waits_since(oldest):
                for context in group.crew.take_back():
                    self._release(context)
