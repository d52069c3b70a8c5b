"""The sealer: follows the ledger's total order, grows the tree over it and signs its heads."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.proof.notes import Head, origin_of, sign_head
from holdfast.errors import Unavailable
from holdfast.ledger import Ledger
from holdfast.services.anchors import ANCHOR_SECONDS, Anchor, Anchoring
from holdfast.services.duties import TTL_SECONDS, Duties, Watch
from holdfast.services.headkeys import HeadKeys
from holdfast.services.outage import Outage
from holdfast.services.pages import Pages
from holdfast.services.ticker import Ticker
from holdfast.services.tree import Tree, load
from holdfast.store.base import Waiter
from holdfast.store.leaves import LeafPage
from holdfast.store.seals import SignedHead

log = logging.getLogger("holdfast.seal")

DUTY = "seal"
EVERY_SECONDS = 1.0
EVERY_EVENTS = 1_000
PACE_SECONDS = 0.2
"""However much happens, heads are this far apart: each costs a commit, which others wait for."""
WAIT_SECONDS_MIN = 0.5
WAIT_SECONDS_MAX = 30.0
OUTAGE_SECONDS = 5.0
SLICE_SECONDS = 1.0


class Sealing(NamedTuple):
    """What one step did."""

    sealed: int
    """Events and changes of keys that came into the tree."""
    size: int
    """Of the tree, now."""
    more: bool
    """There is more to be done at once."""


class Sealer:
    """Seals everything that happens, with the server's key that the ledger was opened with.

    A head is signed `every` second or `every_events` events, whichever comes first. Any number of sealers may stand by: a duty
    sees to it that one works at a time, and the tree itself that two could never fork it. Before it adds anything, a sealer
    checks what is there; where that is not what was signed it raises SealBroken and adds nothing.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        every: Any = EVERY_SECONDS,
        every_events: int = EVERY_EVENTS,
        anchors: Sequence[Anchor] = (),
        anchor_every: Any = ANCHOR_SECONDS,
        duties: Duties | None = None,
        duty_ttl: Any = TTL_SECONDS,
    ) -> None:
        self._log = ledger.sealed_log
        self._every = policies.duration_ms("every", every, limits.SEAL_MS_MIN, limits.SEAL_MS_MAX) / 1_000
        self._every_events = limits.check_integer("every_events", every_events, 1, limits.SEAL_EVENTS_MAX)
        self._watch = Watch(duties or ledger, {DUTY: DUTY}, self._log.nonce(), duty_ttl, self._log.monotonic)
        self._pages = Pages(self._log)
        self._keys = HeadKeys(self._log)
        self._tree: Tree | None = None
        self._outage = Outage(log, "seal")
        self.newest: SignedHead | None = None
        """The newest head that this sealer has signed, or found and checked."""
        self.anchoring = Anchoring(anchors, lambda: self.newest, anchor_every, self._log.monotonic)

    def tick(self) -> Sealing | None:
        """One step: whatever has settled, up to a limit, under a new head. None where it is somebody else's turn."""
        return self._step() if self._watch.holds(DUTY) else None

    def seal_all(self, progress: Callable[[int], None] | None = None) -> Sealing | None:
        """Steps until everything that has settled is sealed; `progress` is told how much that is. None where it is somebody
        else's turn."""
        total = 0
        while (done := self.tick()) is not None:
            total += done.sealed
            if progress is not None:
                progress(total)
            if not (done.sealed or done.more):
                return done._replace(sealed=total)
        return None

    def run(self, stop: threading.Event) -> None:
        """Seal until `stop` is set; an outage of the store is waited out. Raises SealBroken, and Forbidden without a good key."""
        waiter = self._log.waiter()
        ticker = Ticker([self.anchoring], name="holdfast-anchors") if self.anchoring.anchors else None
        if ticker is not None:
            ticker.start()
        try:
            while not stop.is_set():
                self._serve(waiter, stop)
        finally:
            waiter.close()
            self._watch.drop()
            if ticker is not None:
                ticker.close()

    def close(self) -> None:
        """Let another sealer take over at once, and anchor the newest head. `run` ends with it."""
        self._watch.drop()
        self.anchoring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Waiting

    def _serve(self, waiter: Waiter, stop: threading.Event) -> None:
        """Steps until the store is out of reach or somebody wants an end."""
        patience = WAIT_SECONDS_MIN
        try:
            while not stop.is_set():
                done = self.tick()
                self._outage.over()
                if done is not None and done.more:
                    continue
                rung = self._wait(waiter, stop, patience)
                patience = WAIT_SECONDS_MIN if rung else min(2 * patience, WAIT_SECONDS_MAX)
                if rung and done is not None:
                    self._gather(stop)
        except Unavailable as error:
            if not error.retryable:
                raise
            self._outage.began(error)
            stop.wait(OUTAGE_SECONDS)

    def _wait(self, waiter: Waiter, stop: threading.Event, seconds: float) -> bool:
        """True as soon as the bell rings or the duty becomes ours; False after so many seconds, or when somebody wants an end."""
        while seconds > 0 and not stop.is_set():
            slice_seconds = min(seconds, SLICE_SECONDS, self._watch.renew_seconds)
            if waiter.wait(slice_seconds) or self._watch.ask():
                return True
            seconds -= slice_seconds
        return False

    def _gather(self, stop: threading.Event) -> None:
        """Let some more come, so that they share a head: for as long as it may take, or as many as it may be."""
        left, pace = self._every, min(PACE_SECONDS, self._every)
        while left > 0 and not stop.wait(pace):
            left -= pace
            if self._tree is None or self._log.last_pos() - self._tree.pos >= self._every_events:
                return

    # Sealing

    def _step(self) -> Sealing:
        tree = self._tree
        # Whatever goes wrong on the way, the tree in memory may be ahead of the one that is kept: it is then read anew.
        self._tree = None
        if tree is None:
            tree = load(self._log)
            self.newest = tree.base
        page, more = self._pages.gather(tree.pos)
        if self._pages.keys_changed:
            self._keys.forget()
            self._pages.keys_changed = False
        if page.hashes and not self._sealed(tree, page):
            return Sealing(0, tree.size, more=True)
        self._tree = tree
        return Sealing(len(page.hashes), tree.size, more)

    def _sealed(self, tree: Tree, page: LeafPage) -> bool:
        """Add leaves to the tree and sign its new head; False where somebody else has sealed meanwhile."""
        base, pos = tree.base, page.positions[-1]
        key = self._keys.key_for(pos)
        rows = tree.add(page)
        root = tree.root()
        note = sign_head(Head(origin_of(self._log.ledger_id), tree.size, root), key)
        head = SignedHead(tree.size, pos, root, note)
        if not self._log.seal(rows, head, base):
            log.warning("somebody else has sealed beyond size %d: beginning again", 0 if base is None else base.size)
            return False
        tree.base = self.newest = head
        return True
