"""Those who wait for a job are told of its end, in its own transaction: as sets, and not more of them than one may hold.

A success lets go of those who wait for nobody else, and goes no further. What came to nothing may bring down others, and those
others again: nothing here calls itself, however long the line is. Past a number of them the rest is noted, for a sweep to go on.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from holdfast.core import commands as c
from holdfast.core.lifecycle import Outcome, decide
from holdfast.core.limits import CASCADE_MAX
from holdfast.core.model import TERMINAL, Job, Micros
from holdfast.core.waiting import Standing, consequence, unblocked
from holdfast.store.base import Session


def told_of(session: Session, job: Job, now: Micros, request_id: str | None) -> list[Outcome]:
    """Tell those who wait for a job that it is over, and those who wait for them where that ends them too; what came of it."""
    if job.status not in TERMINAL:
        return []
    ended = standing(job)
    return _let_go(session, ended, now, request_id) if ended.is_met else bring_down(session, [ended], now, request_id)


def _let_go(session: Session, ended: Standing, now: Micros, request_id: str | None) -> list[Outcome]:
    waiting = session.lock_waiting([ended.id])
    free = [id_ for id_, left in waiting.items() if left == 1]
    if len(free) < len(waiting):
        session.meet([id_ for id_, left in waiting.items() if left > 1])
    jobs = session.load(free, lock=False) if free else {}
    return save(session, [(jobs[id_], unblocked(id_, ended, request_id)) for id_ in free], now)


def save(session: Session, asked: Iterable[tuple[Job, c.JobCommand]], now: Micros) -> list[Outcome]:
    """Decide what is asked of jobs that wait, and save it all at once."""
    return _saved(session, [decide(job, command, now) for job, command in asked])


def _saved(session: Session, outcomes: list[Outcome]) -> list[Outcome]:
    if outcomes:
        session.save_told([one.job for one in outcomes], [event for one in outcomes for event in one.events])
    return outcomes


def bring_down(session: Session, over: Sequence[Standing], now: Micros, request_id: str | None) -> list[Outcome]:
    """End whoever waits for one of these, which came to nothing, and does not want to go on waiting; and so on from there.

    Whoever is below is looked for, locked in order, and only then loaded: somebody may have begun to wait meanwhile for one who
    was not locked yet. So it is looked for again until nobody is found.
    """
    outcomes: list[Outcome] = []
    ended = {one.id: one for one in over}
    while below := session.falling(ended, CASCADE_MAX - len(outcomes)):
        session.lock(below)
        fallen = _fall(session.load(below, lock=False), ended.values(), now, request_id)
        outcomes += _saved(session, fallen)
        ended |= {one.job.id: standing(one.job) for one in fallen}
        if len(outcomes) >= CASCADE_MAX or not fallen:
            session.note_untold(ended)
            break
    return outcomes


def _fall(jobs: dict[int, Job], over: Iterable[Standing], now: Micros, request_id: str | None) -> list[Outcome]:
    """What the ends of `over` come to for these jobs, those nearest to them first."""
    waiters: dict[int, list[Job]] = defaultdict(list)
    for _, job in sorted(jobs.items()):
        for on_id in job.waits_for:
            waiters[on_id].append(job)
    fallen: dict[int, Outcome] = {}
    behind = deque(over)
    while behind:
        ended = behind.popleft()
        for job in waiters.pop(ended.id, ()):
            command = None if job.id in fallen or not job.is_waiting else consequence(job, ended, request_id)
            if command is not None:
                fallen[job.id] = outcome = decide(job, command, now)
                behind.append(standing(outcome.job))
    return list(fallen.values())


def tell_on(session: Session, ids: Sequence[int], now: Micros, request_id: str | None) -> list[Outcome]:
    """Go on telling of ends that were noted as untold. Whatever is left is noted again."""
    ended = [standing(job) for _, job in sorted(session.load(ids, lock=True).items())]
    session.forget_untold(ids)
    return bring_down(session, ended, now, request_id) if ended else []


def standing(job: Job) -> Standing:
    """A job as those see it who wait for it."""
    return Standing(job.id, job.status, job.rev)
