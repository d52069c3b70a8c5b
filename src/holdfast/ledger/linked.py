"""Jobs that wait for others: made, with what they wait for. All within one transaction."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.lifecycle import Outcome
from holdfast.core.model import NEVER, TERMINAL, Status
from holdfast.core.waiting import Standing, consequence, unblocked
from holdfast.errors import NotFound
from holdfast.ledger import answers
from holdfast.ledger.refs import in_order
from holdfast.ledger.telling import bring_down, save, standing
from holdfast.store.base import Session


class Linked(NamedTuple):
    """What a call with dependencies came to: an answer for each of its jobs, and what was decided about them at once."""

    answers: list[answers.Found]
    outcomes: list[Outcome]


def make(session: Session, commands: Sequence[c.EnqueueLinked]) -> Linked:
    """The jobs of one call, each waiting for those it depends on.

    Those are locked first where that needs no waiting: they cannot end before this transaction does. A job that is locked by
    another transaction may end meanwhile without knowing of its new dependent, so a sweep looks at that one again.
    """
    open_ids: set[int] = set()
    outside = _follow(session, {id_ for command in commands for id_ in command.depends_on}, open_ids)
    for command in commands:
        _check_known(command, outside)
    ids = session.draw_ids(len(commands))
    new = _insert(session, commands, ids)
    found = _follow(session, {ids[place] for place in range(len(ids)) if place not in new}, open_ids)
    edges: dict[int, list[Standing]] = {}
    for place in sorted(new):
        command = commands[place]
        inside = [found.get(id_) or Standing(id_, Status.QUEUED, 1) for id_ in (ids[other] for other in command.after)]
        known = [*(outside[id_] for id_ in command.depends_on if id_ in outside), *inside]
        if command.depends_on or command.after:
            edges[ids[place]] = sorted({standing.id: standing for standing in known}.values())
    outcomes = _link(session, commands, edges, open_ids)
    jobs = session.load(ids, lock=False)
    return Linked([answers.Found(jobs[id_], place in new) for place, id_ in enumerate(ids)], outcomes)


def _check_known(command: c.EnqueueLinked, outside: dict[int, Standing]) -> None:
    """What a replay's first job depended on may have been pruned since: whoever is gone keeps nobody waiting."""
    for id_ in command.depends_on:
        if id_ not in outside and command.replay_of is None:
            raise NotFound(f"there is no job {id_} to depend on", job_id=id_)


def _follow(session: Session, ids: Iterable[int], open_ids: set[int]) -> dict[int, Standing]:
    """Where these jobs stand, by the ids asked for. One that came to nothing stands where its newest replay does.

    Those that may end before this transaction does are added to `open_ids`.
    """
    wanted = set(ids)
    open_ids |= session.pin(wanted)
    found = session.standings(wanted)
    behind = deque(found)
    while behind:
        id_ = behind.popleft()
        replay = found[id_].replay if found[id_].came_to_nothing else None
        if replay is None:
            continue
        open_ids |= session.pin([replay])
        newer = session.standings([replay])
        if replay in newer:
            found[id_] = newer[replay]
            behind.append(id_)
    return found


def _insert(session: Session, commands: Sequence[c.EnqueueLinked], ids: list[int]) -> set[int]:
    """Write the jobs under their ids; the places of the new ones. Where a key is held, the id becomes that of its holder."""
    keyed = [place for place in in_order(commands) if commands[place].dedupe_key is not None]
    new = set(range(len(commands)))
    for place in keyed:
        made = session.enqueue_keyed(_row(commands[place], ids, place))
        if not made.is_new:
            ids[place] = made.job_id
            new.discard(place)
    plain = [_row(command, ids, place) for place, command in enumerate(commands) if command.dedupe_key is None]
    if plain:
        session.enqueue(plain)
    return new


def _row(command: c.EnqueueLinked, ids: Sequence[int], place: int) -> c.Enqueue:
    """What the store is to write: with its id, with the ids of those it depends on, and not to be claimed before they end."""
    if not command.depends_on and not command.after:
        return msgspec.structs.replace(command, job_id=ids[place], bare=False)
    payload = command.payload
    if command.after:
        on = tuple(sorted({*command.depends_on, *(ids[other] for other in command.after)}))
        payload = msgspec.structs.replace(payloads.decode(payloads.Enqueued, payload), depends_on=on).encode()
    return msgspec.structs.replace(command, job_id=ids[place], payload=payload, available_at=NEVER, delay_us=0, bare=False)


def _link(
    session: Session, commands: Sequence[c.EnqueueLinked], edges: dict[int, list[Standing]], open_ids: set[int]
) -> list[Outcome]:
    """Note the edges; then let go of jobs that wait for nothing, and end jobs that wait in vain."""
    if not edges:
        return []
    unmet = {job_id: [one for one in on if not one.is_met] for job_id, on in edges.items()}
    session.link(
        {job_id: [one.id for one in on] for job_id, on in edges.items()},
        {job_id: [one.id for one in on] for job_id, on in unmet.items() if on},
        open_ids,
    )
    return _conclude(session, unmet, commands[0].request_id, is_replay=commands[0].replay_of is not None)


def _conclude(
    session: Session, unmet: dict[int, list[Standing]], request_id: str | None, *, is_replay: bool = False
) -> list[Outcome]:
    """Let go of jobs with nothing left to wait for, and end those that wait for one that came to nothing, if they want that."""
    lost = {} if is_replay else {id_: on for id_, on in unmet.items() if any(one.came_to_nothing for one in on)}
    due = [job_id for job_id, on in unmet.items() if not on or job_id in lost]
    if not due:
        return []
    now, asked = session.now(), []
    for job_id, job in sorted(session.load(due, lock=False).items()):
        why = next((one for one in lost.get(job_id, ()) if one.came_to_nothing), None)
        wanted = unblocked(job_id, None, request_id) if why is None else consequence(job, why, request_id)
        if wanted is not None:
            asked.append((job, wanted))
    outcomes = save(session, asked, now)
    over = [standing(outcome.job) for outcome in outcomes if outcome.job.status in TERMINAL]
    return outcomes + (bring_down(session, over, now, request_id) if over else [])


def link_late(session: Session, job_ids: Sequence[int], request_id: str | None) -> tuple[set[int], list[Outcome]]:
    """Let the jobs that these ones wait for count them as dependents, or tell them of their end.

    For jobs that were made while another transaction had locked one of those, or in a caller's own transaction. Answers which of
    them are linked, and what that came to. The others wait for a lock of another transaction.
    """
    edges = session.depends_on(job_ids)
    open_ids = session.try_lock({*job_ids, *(on_id for on in edges.values() for on_id in on)})
    free = {id_: on for id_, on in edges.items() if id_ not in open_ids and open_ids.isdisjoint(on)}
    found = _follow(session, {on_id for on in free.values() for on_id in on}, open_ids)
    for on_id, one in found.items():
        if one.id != on_id and one.id not in open_ids:
            session.hand_on(on_id, one.id)
    unmet: dict[int, list[Standing]] = {}
    for id_, on in free.items():
        known = {found[on_id].id: found[on_id] for on_id in on if on_id in found}
        if open_ids.isdisjoint(known):
            unmet[id_] = [one for one in known.values() if not one.is_met]
    session.forget_links(unmet)
    waiting = {id_ for id_, job in session.load(list(unmet), lock=False).items() if job.is_waiting} if unmet else set()
    unmet_ids = {id_: [one.id for one in on] for id_, on in unmet.items() if id_ in waiting}
    if unmet_ids:
        session.set_waits(unmet_ids, limited=False)
    return set(unmet), _conclude(session, {id_: on for id_, on in unmet.items() if id_ in waiting}, request_id)
