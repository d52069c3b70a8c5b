"""Verbs that explain. What they need is imported when somebody asks: most programs never do."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.errors import NotFound
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk
from holdfast.store.base import Session

if TYPE_CHECKING:
    from holdfast.core.doctor import Diagnosis
    from holdfast.core.explain import Explanation

LOCKED_SECONDS = 1.0
"""Shorter locks on a job are everyday."""


class Inquiry(Desk):
    def explain(self, job_id: int, *, to_claim: bool = False) -> "Explanation":
        """Why a job stands where it stands, what happens next and when, and what can be done about it. It changes nothing.

        With `to_claim`, for somebody who could claim it: whether workers are there, and what else they would claim first, is
        left out.
        """
        from holdfast.core.explain import explain
        from holdfast.ledger.facts import facts_of

        job_id = admit.job_id(job_id)
        locked_by = self._store.lock_holder(job_id, LOCKED_SECONDS)

        def work(session: Session) -> "Explanation":
            job = session.load([job_id], lock=False).get(job_id)
            if job is None:
                raise NotFound(f"there is no job {job_id}", job_id=job_id)
            now = session.now()
            return explain(job, facts_of(session, job, now, locked_by, to_claim=to_claim), now)

        return self._store.read(work)

    def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> "Diagnosis":
        """Whether the ledger is well, and what to do where it is not. It changes nothing.

        With `clock`, a clock of the caller's, also how far that is from the ledger's.
        """
        from holdfast.core.doctor import diagnose
        from holdfast.ledger.census import census_of, skew_of

        skew = None if clock is None else skew_of(self._store, admit.function("clock", clock))
        return diagnose(self.id, self._store.vitals(), self._store.read(census_of), skew)
