"""What comes next in the total order, as leaves for the tree."""

from holdfast.ledger.seals import SealedLog
from holdfast.store.leaves import POLICY, LeafPage, leaf_page
from holdfast.store.seals import SettledRows

PAGE_EVENTS = 5_000
"""Read at once: more would only take more memory."""
STEP_EVENTS = 50_000
"""What one head takes in at most, where a sealer has fallen behind."""


class Pages:
    """Remembers what the rows refer to."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._policies: dict[int, str] = {}
        self.keys_changed = False
        """Set where changes of keys were among the leaves."""

    def gather(self, after: int) -> tuple[LeafPage, bool]:
        """The leaves after a position, as many as one head may take in, and whether there are more."""
        page = LeafPage([], [])
        while len(page.hashes) < STEP_EVENTS:
            found = self._log.page(after, PAGE_EVENTS)
            self._learn(found)
            made = leaf_page(found, self._policies, self._log.ledger_id)
            page.hashes.extend(made.hashes)
            page.positions.extend(made.positions)
            if len(found.events) < PAGE_EVENTS:
                return page, False
            after = found.until
        return page, True

    def _learn(self, found: SettledRows) -> None:
        self.keys_changed = self.keys_changed or bool(found.keys)
        if not self._policies.keys() >= {row[POLICY] for row in found.events if row[POLICY] is not None}:
            self._policies = self._log.policies()
