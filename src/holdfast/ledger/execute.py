"""A group of calls inside one transaction: request ids → rows → decide → rows and events.

Commands on one job keep their order: they go in separate rounds. Within a round, hot verbs go as one statement; whatever its
guards do not match is loaded, decided and saved one by one. A refusal is that command's answer and touches nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core import commands as c
from holdfast.errors import Unavailable
from holdfast.ledger import deciding, entering, hot
from holdfast.ledger.appended import answer_appends
from holdfast.ledger.notary import Notary, Sitting
from holdfast.ledger.repeating import answer_repeats, keep
from holdfast.ledger.requests import Item, Request, Result, Runner
from holdfast.store.base import Session


def execute(requests: Sequence[Request], notary: Notary, careful: bool, session: Session) -> list[Result]:
    """Run the requests and return a new result for each. If the transaction is run again, this is called again.

    A `careful` run waits for no row. It locks all jobs beforehand, and refuses as locked those that another transaction has.
    """
    session.careful = careful
    results = [Result(request) for request in requests]
    sitting = notary.sit(session)
    waiting: Sequence[Result] = results
    while waiting:
        # Requests that repeat one of the same group wait until that one is answered.
        fresh, waiting = answer_repeats(session, waiting)
        locked = _locked(session, fresh) if careful or any(one.request.verb == "sweep" for one in fresh) else set()
        for result in fresh:
            if result.request.beats:
                _record_beats(session, result, locked, sitting)
        if not locked and len(fresh) == 1 and _is_plain_settlement(fresh[0].request):
            hot.settle_all(session, fresh[0], sitting)
        else:
            for turn in _rounds(fresh):
                for kind, found in turn.items():
                    if items := _put_off(found, locked) if locked else found:
                        _RUNNERS.get(kind, deciding.decide_each)(session, items, sitting)
        answer_appends(session, fresh)
        keep(session, fresh)
    if changed := [result.queues for result in results if result.changed]:
        session.wake(set().union(*changed))
    return results


def _record_beats(session: Session, result: Result, locked: set[int], sitting: Sitting) -> None:
    """Record the last heartbeats of holders, before their outcomes.

    A refused heartbeat is dropped: its outcome is refused too, or was recorded before.
    """
    beats = [beat for beat in result.request.beats if beat.job_id not in locked]
    if not beats:
        return
    recorded = Result(Request("heartbeat", beats))
    hot.beat(session, [Item(recorded, place, beat) for place, beat in enumerate(beats)], sitting)
    result.changed = result.changed or recorded.changed
    result.outcomes += recorded.outcomes
    result.queues |= recorded.queues


def _is_plain_settlement(request: Request) -> bool:
    """Whether these are a worker's completions in bulk, with no job in it twice."""
    return isinstance(request.commands[0], c.Settle) and _distinct(request.commands)


_KEEPS_ON = (c.Heartbeat, c.Start, c.Resume, c.MoveJob, c.Reprioritise, c.Reschedule)
"""Commands that never end a job."""


def _locked(session: Session, results: Sequence[Result]) -> set[int]:
    """Lock the jobs of these requests and their dependents. Return the jobs that are locked, or have a locked dependent."""
    commands = [command for one in results for command in one.request.commands if isinstance(command, c.JobCommand)]
    locked = session.try_lock({command.job_id for command in commands})
    ending = {command.job_id for command in commands if not isinstance(command, _KEEPS_ON)} - locked
    below = session.try_lock(set(session.downstream(ending)) - ending) if ending else set()
    if below:
        locked |= {job_id for job_id in ending if below.intersection(session.downstream([job_id]))}
    return locked


def _put_off(items: Sequence[Item], locked: set[int]) -> list[Item]:
    """Refuse commands on locked jobs; the others are left."""
    left = []
    for item in items:
        job_id = getattr(item.command, "job_id", None)
        if job_id in locked:
            item.answer(Unavailable(f"job {job_id} is locked by another transaction", locked=True, job_id=job_id))
            item.result.locked = True
        else:
            left.append(item)
    return left


def _rounds(results: Sequence[Result]) -> Iterable[dict[type[c.Command], list[Item]]]:
    """Commands by round and type. Commands on one job go in separate rounds, in their order."""
    if len(results) == 1 and _distinct(commands := results[0].request.commands):
        return [{type(commands[0]): [Item(results[0], place, command) for place, command in enumerate(commands)]}]
    rounds: list[dict[type[c.Command], list[Item]]] = []
    last: dict[int, int] = {}
    for result in results:
        for place, command in enumerate(result.request.commands):
            number = 0
            if isinstance(command, c.JobCommand):
                number = last[command.job_id] = last.get(command.job_id, -1) + 1
            if number == len(rounds):
                rounds.append(defaultdict(list))
            rounds[number][type(command)].append(Item(result, place, command))
    return rounds


def _distinct(commands: Sequence[Any]) -> bool:
    """Whether no job is in it twice."""
    return not isinstance(commands[0], c.JobCommand) or len({command.job_id for command in commands}) == len(commands)


_RUNNERS: dict[type[c.Command], Runner] = {
    c.Enqueue: entering.enqueue,
    c.EnqueueLinked: entering.enqueue_linked,
    c.ClaimNext: entering.claim,
    c.Replay: entering.replay,
    c.ReplayMany: entering.replay_many,
    c.Compensate: deciding.compensate_each,
    c.Tell: deciding.tell_on,
    c.Link: deciding.link_late,
    c.Start: hot.as_one(lambda session: session.start),
    c.Heartbeat: hot.beat,
    c.Complete: hot.complete,
    c.Settle: hot.settle,
}
