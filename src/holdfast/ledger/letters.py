"""Dead letters: finding them, and starting them over."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, FailureStage, ReasonCode, Role
from holdfast.errors import HoldfastError
from holdfast.ledger import admit
from holdfast.ledger.commit import only_answer
from holdfast.ledger.desk import Desk, given, shown
from holdfast.ledger.face import Job
from holdfast.ledger.requests import Request
from holdfast.store.base import LetterFilter, Session


class Letters(Desk):
    def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> list[Job]:
        """Dead-lettered jobs by ascending id; the next page is `after=` the last id of this one.

        `since` and `until` are about when they were dead-lettered. Those that were discarded are left out unless asked for.
        """
        chosen = LetterFilter(**_chosen(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit))

        def work(session: Session) -> list[Job]:
            ids = session.dead_letters(chosen)
            found = session.load(ids, lock=False)
            return [shown(found[id_]) for id_ in ids]

        return self._store.read(work)

    def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        """Of each of these jobs that was replayed, the newest replay."""
        ids = [admit.job_id(job_id) for job_id in admit.items("job_ids", job_ids)]

        def work(session: Session) -> dict[int, Job]:
            newest = session.newest_replays(ids)
            found = session.load(sorted(newest.values()), lock=False)
            return {id_: shown(found[replay]) for id_, replay in newest.items()}

        return self._store.read(work)

    def replay_many(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
        again: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Replay the dead letters that `dead_letters` would give, in one transaction. One answer each, in their order.

        A dead letter that has been replayed is skipped, unless `again` is true: its answer is its newest replay, as not new. It
        has been replayed if one of its replays is live, has succeeded or was dead-lettered. A replay that failed or was cancelled
        does not count, unless it was replayed itself. With `again`, a live replay is still given back instead of a second one.

        At most `limit` are replayed, and at most 1,000 are looked at. The next page is `after=` the last `replay_of` of this one.
        `reason` says why they are replayed; `reason_code` chooses them.
        """
        chosen = _chosen(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit)
        command = c.ReplayMany(
            actor=admit.actor(actor, Role.OPERATOR, self._actor),
            request_id=admit.request_id(request_id) or self._entropy.nonce(),
            reason=admit.reason_if_any(reason),
            again=admit.switch("again", again),
            **chosen,
        )
        body = admit.body_hash("replay_many", sorted(chosen.items()), *given(reason), *(("again",) if again else ()))
        request = Request("replay_many", [command], request_id is not None, keep=True, body_hash=body)
        answers = only_answer(self._pipeline.submit(request))
        return [a if isinstance(a, HoldfastError) else Job(a.job.id, a.job, is_new=a.is_new) for a in answers]


def _chosen(
    queue: Any, kind: Any, code: Any, stage: Any, since: Any, until: Any, discarded: Any, after: Any, limit: Any
) -> dict[str, Any]:
    return {
        "queue": None if queue is None else limits.check_name("queue", queue),
        "kind": None if kind is None else limits.check_name("kind", kind),
        "reason_code": None if code is None else admit.choice("reason_code", ReasonCode, code),
        "failure_stage": None if stage is None else admit.choice("failure_stage", FailureStage, stage),
        "since": None if since is None else admit.moment("since", since),
        "until": None if until is None else admit.moment("until", until),
        "discarded": admit.switch("discarded", discarded),
        "after": limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
        "limit": limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
    }
