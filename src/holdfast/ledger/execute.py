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
from holdfast.ledger.door import Call
from holdfast.ledger.items import Item, Runner
from holdfast.ledger.notary import Notary, Sitting
from holdfast.ledger.repeating import answer_repeats, keep
from holdfast.store.base import Session


def execute(session: Session, calls: Sequence[Call], notary: Notary, *, careful: bool = False) -> None:
    """Answer every call. Runs again from the start if the transaction is run again.

    A `careful` run waits for no row. It locks all jobs beforehand, and refuses as locked those that another transaction has.
    """
    session.careful = careful
    for call in calls:
        call.answers = [None] * len(call.commands)
        call.wakes = set()
        call.changed = call.locked = False
        call.outcomes = []
    fresh, twins = answer_repeats(session, calls)
    locked = _locked(session, fresh) if careful or any(call.verb == "sweep" for call in fresh) else set()
    sitting = notary.sit(session)
    for call in fresh:
        if call.said:
            _record_said(session, call, locked, sitting)
    if not locked and len(fresh) == 1 and isinstance(fresh[0].commands[0], c.Settle) and _distinct(fresh[0].commands):
        hot.settle_call(session, fresh[0], sitting)
    else:
        for turn in _rounds(fresh):
            for kind, found in turn.items():
                if items := _put_off(found, locked) if locked else found:
                    _RUNNERS.get(kind, deciding.decide_each)(session, items, sitting)
    answer_appends(session, fresh)
    keep(session, fresh)
    if twins:
        execute(session, twins, notary, careful=careful)


def _record_said(session: Session, call: Call, locked: set[int], sitting: Sitting) -> None:
    """Record what the holders said last, before their outcomes. A beat that is refused is dropped: the outcome is refused too,
    or was recorded before."""
    beats = [beat for beat in call.said if beat.job_id not in locked]
    if not beats:
        return
    saying = Call("heartbeat", beats, repeat=False, keep=False, body_hash=b"")
    saying.answers = [None] * len(beats)
    hot.beat(session, [Item(saying, place, beat) for place, beat in enumerate(beats)], sitting)
    call.changed = call.changed or saying.changed
    call.outcomes += saying.outcomes
    call.wakes |= saying.wakes


_KEEPS_ON = (c.Heartbeat, c.Start, c.Resume, c.MoveJob, c.Reprioritise, c.Reschedule)
"""Commands that never end a job."""


def _locked(session: Session, calls: Sequence[Call]) -> set[int]:
    """Lock the jobs of these calls and their dependents. Answer those that another transaction has, or a dependent of theirs."""
    commands = [command for call in calls for command in call.commands if isinstance(command, c.JobCommand)]
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
            item.call.locked = True
        else:
            left.append(item)
    return left


def _rounds(calls: Iterable[Call]) -> Iterable[dict[type[c.Command], list[Item]]]:
    calls = list(calls)
    if len(calls) == 1 and _distinct(calls[0].commands):
        call = calls[0]
        return [{type(call.commands[0]): [Item(call, place, command) for place, command in enumerate(call.commands)]}]
    turns: list[dict[type[c.Command], list[Item]]] = []
    last: dict[int, int] = {}
    for call in calls:
        for index, command in enumerate(call.commands):
            turn = 0
            if isinstance(command, c.JobCommand):
                turn = last[command.job_id] = last.get(command.job_id, -1) + 1
            if turn == len(turns):
                turns.append(defaultdict(list))
            turns[turn][type(command)].append(Item(call, index, command))
    return turns


def _distinct(commands: Sequence[Any]) -> bool:
    """The everyday call: no job is in it twice."""
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
