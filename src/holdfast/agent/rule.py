"""Which task an agent goes on with. The rule is stated, and the same ledger always gives the same answer."""

from typing import NamedTuple

from holdfast.agent.idle import Wish
from holdfast.core import limits
from holdfast.core.model import HELD, Job, Status
from holdfast.errors import InvalidTransition, LeaseConflictError, NotClaimable, NotFound, SignatureInvalid
from holdfast.ledger.acting import Acts
from holdfast.store.agents import AgentPlace


class Choice(NamedTuple):
    job: Job
    why: str


TTL_MS = 300_000
"""How long a new claim of an agent lasts unless it says otherwise."""


def take_up(acts: Acts, job_id: int, ttl_ms: int | None) -> Job:
    """Claim the task and start it. A live claim of this agent is renewed; any other claim makes a new attempt.

    A renewal without `ttl_ms` keeps the claim's length.
    """
    job = acts.claim(job_id, TTL_MS if ttl_ms is None else ttl_ms, keeps_ttl=ttl_ms is None)
    return acts.start(job) if job.status is Status.CLAIMED else job


def choose(acts: Acts, place: AgentPlace, wish: Wish) -> Choice | None:
    """Its focus, an own task that runs, one that is claimed, its last one if that was put back, then the next in order, then
    one that somebody has let expire."""
    return _own(acts, place, wish) or _last(acts, place, wish) or _next(acts, wish) or _expired(acts, wish)


def _own(acts: Acts, place: AgentPlace, wish: Wish) -> Choice | None:
    ids = acts.session.own_tasks(acts.who.name, acts.who.incarnation, limits.OWN_TASKS_MAX)
    if place.focus is not None:
        ids = [place.focus, *(id_ for id_ in ids if id_ != place.focus)]
    found = acts.session.load(ids, lock=False) if ids else {}
    for id_ in ids:
        job = found.get(id_)
        if job is None or not acts.holds(job) or job.status not in (*HELD, Status.STALLED):
            continue
        why = "focus" if id_ == place.focus else job.status.value
        if (taken := _tried(acts, id_, wish.ttl_ms)) is not None:
            return Choice(taken, why)
    return None


def _last(acts: Acts, place: AgentPlace, wish: Wish) -> Choice | None:
    """Whatever the agent had last and somebody has put back into the queue."""
    if place.last is None:
        return None
    job = acts.session.load([place.last], lock=False).get(place.last)
    if job is None or job.status is not Status.QUEUED or job.last_owner != acts.who.name or not _wanted(job, wish):
        return None
    taken = _tried(acts, job.id, wish.ttl_ms)
    return None if taken is None else Choice(taken, "last")


def _wanted(job: Job, wish: Wish) -> bool:
    return (wish.queues is None or job.queue in wish.queues) and (wish.kinds is None or job.kind in wish.kinds)


def _next(acts: Acts, wish: Wish) -> Choice | None:
    """Higher priority first, then what has been available longest, then by id."""
    now = acts.session.now()
    ready = [first for first in acts.session.first_tasks(wish.queues, wish.kinds) if first.available_at <= now]
    ready.sort(key=lambda first: (-first.priority, first.available_at, first.id))
    passed: list[int] = []
    for first in ready[: limits.RESUME_TRIES_MAX]:
        while len(passed) < limits.RESUME_TRIES_MAX:
            id_ = acts.session.take_task(first.queue, first.priority, wish.kinds, passed)
            if id_ is None:
                break
            if (taken := _tried(acts, id_, wish.ttl_ms)) is not None:
                return Choice(taken, "next")
            passed.append(id_)
    return None


def _expired(acts: Acts, wish: Wish) -> Choice | None:
    """The longest expired first; one that somebody else is just taking is passed over."""
    for id_ in acts.session.expired_tasks(wish.queues, wish.kinds, limits.RESUME_TRIES_MAX):
        if acts.session.lock_task(id_) and (taken := _tried(acts, id_, wish.ttl_ms)) is not None:
            return Choice(taken, "expired")
    return None


def _tried(acts: Acts, job_id: int, ttl_ms: int | None) -> Job | None:
    """None where it went to somebody else, into a backoff or to its end since it was looked at, or is not for this process to
    sign. A refusal has changed nothing."""
    try:
        return take_up(acts, job_id, ttl_ms)
    except (LeaseConflictError, NotClaimable, InvalidTransition, NotFound, SignatureInvalid):
        return None
