"""Jobs that wait for other jobs: how they are created, and what the end of a job does to its dependents."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads
from holdfast.core.decide import Decision, decide
from holdfast.core.dependencies import DependencyState, failure_command, unblock_command
from holdfast.core.limits import CASCADE_MAX
from holdfast.core.model import NEVER, ON_FAILURE_DEFAULT, TERMINAL, JobRecord, Micros, Status
from holdfast.errors import NotFound, ValidationError
from holdfast.ledger import windows
from holdfast.ledger.requests import FoundJob
from holdfast.store.session import Session


def resolve_dependents(session: Session, job: JobRecord, now: Micros, request_id: str | None) -> list[Decision]:
    """Unblock the dependents of a job that has succeeded, or cascade a failure to them. Return the decisions."""
    if job.status not in TERMINAL:
        return []
    ended = dependency_of(job)
    return _unblock_dependents(session, ended, now, request_id) if ended.is_met else cascade(session, [ended], now, request_id)


def _unblock_dependents(session: Session, ended: DependencyState, now: Micros, request_id: str | None) -> list[Decision]:
    unmet_counts = session.lock_waiting([ended.id])
    ready_ids = [id_ for id_, count in unmet_counts.items() if count == 1]
    if len(ready_ids) < len(unmet_counts):
        session.decrement_waits([id_ for id_, count in unmet_counts.items() if count > 1])
    jobs = session.load(ready_ids, lock=False) if ready_ids else {}
    return decide_and_save(session, [(jobs[id_], unblock_command(id_, ended, request_id)) for id_ in ready_ids], now)


def decide_and_save(session: Session, commands: Iterable[tuple[JobRecord, c.JobCommand]], now: Micros) -> list[Decision]:
    """Decide commands on jobs that wait, and save all decisions at once."""
    return _save(session, [decide(job, command, now) for job, command in commands])


def _save(session: Session, decisions: list[Decision]) -> list[Decision]:
    if decisions:
        session.save_dependents([one.job for one in decisions], [event for one in decisions for event in one.events])
    return decisions


def cascade(session: Session, failed: Sequence[DependencyState], now: Micros, request_id: str | None) -> list[Decision]:
    """End the dependents of failed jobs, and their dependents in turn, unless their policy is to keep waiting.

    The dependents are found, locked in order, and only then loaded. Meanwhile another transaction may have added a dependent of
    a job that was not locked yet, so the search is repeated until it finds none.
    """
    decisions: list[Decision] = []
    ended = {one.id: one for one in failed}
    while dependent_ids := session.failing_dependents(ended, CASCADE_MAX - len(decisions)):
        session.lock(dependent_ids)
        new = _decide_cascade(session.load(dependent_ids, lock=False), ended.values(), now, request_id)
        decisions += _save(session, new)
        ended |= {one.job.id: dependency_of(one.job) for one in new}
        if len(decisions) >= CASCADE_MAX or not new:
            session.note_open_cascades(ended)
            break
    return decisions


def _decide_cascade(
    jobs: dict[int, JobRecord], failed: Iterable[DependencyState], now: Micros, request_id: str | None
) -> list[Decision]:
    """Decide what the failed jobs do to their dependents among `jobs`, the nearest first."""
    dependents: dict[int, list[JobRecord]] = defaultdict(list)
    for _, job in sorted(jobs.items()):
        for on_id in job.waits_for:
            dependents[on_id].append(job)
    decisions: dict[int, Decision] = {}
    pending = deque(failed)
    while pending:
        ended = pending.popleft()
        for job in dependents.pop(ended.id, ()):
            command = None if job.id in decisions or not job.is_waiting else failure_command(job, ended, request_id)
            if command is not None:
                decisions[job.id] = decision = decide(job, command, now)
                pending.append(dependency_of(decision.job))
    return list(decisions.values())


def continue_cascade(session: Session, ids: Sequence[int], now: Micros, request_id: str | None) -> list[Decision]:
    """Continue cascades that were too large for one transaction. What is left after this one is noted again."""
    ended = [dependency_of(job) for _, job in sorted(session.load(ids, lock=True).items())]
    session.clear_open_cascades(ids)
    return cascade(session, ended, now, request_id) if ended else []


def dependency_of(job: JobRecord) -> DependencyState:
    """Return the state of a job for its dependents."""
    return DependencyState(job.id, job.status, job.rev)


class LinkedJobs(NamedTuple):
    """The jobs of a call with dependencies: an answer for each, and the decisions about those that do not have to wait."""

    answers: list[FoundJob]
    decisions: list[Decision]


Edges = dict[int, list[DependencyState]]
"""The dependencies of each job, by its id."""


def make_linked(session: Session, commands: Sequence[c.EnqueueLinked]) -> LinkedJobs:
    """Create the jobs of one call, each waiting for its dependencies.

    The dependencies are locked first, without waiting, so that they cannot end before this transaction does. A dependency that
    another transaction has locked may end before its new dependent is visible to it, so a sweep checks that one again.
    """
    outside, open_ids = _newest_states(session, {id_ for command in commands for id_ in command.depends_on})
    for command in commands:
        _check_known(command, outside)
    ids = session.draw_ids(len(commands))
    new_places, changes = _insert(session, commands, ids)
    existing, open_existing_ids = _newest_states(session, {id_ for place, id_ in enumerate(ids) if place not in new_places})
    edges = {ids[place]: _edges_of(commands[place], ids, outside, existing) for place in sorted(new_places)}
    decisions = changes + _link(
        session, commands, {id_: on for id_, on in edges.items() if on is not None}, open_ids | open_existing_ids
    )
    jobs = session.load(ids, lock=False)
    return LinkedJobs([FoundJob(jobs[id_], place in new_places) for place, id_ in enumerate(ids)], decisions)


def _edges_of(
    command: c.EnqueueLinked,
    ids: Sequence[int],
    outside: Mapping[int, DependencyState],
    existing: Mapping[int, DependencyState],
) -> list[DependencyState] | None:
    """Return the dependencies of a new job, ordered by id, or None if its command names none.

    `outside` has the states of jobs outside the call, and `existing` those of jobs that the call found by their dedupe keys.
    """
    if not command.depends_on and not command.after:
        return None
    known = [outside[id_] for id_ in command.depends_on if id_ in outside]
    inside_ids = [ids[place] for place in command.after]
    known += [existing.get(id_) or DependencyState(id_, Status.QUEUED, 1) for id_ in inside_ids]
    return sorted({one.id: one for one in known}.values())


def _check_known(command: c.EnqueueLinked, outside: dict[int, DependencyState]) -> None:
    """Raise NotFound for an unknown dependency, except in a replay: dependencies of the original may have been pruned."""
    for id_ in command.depends_on:
        if id_ not in outside and command.replay_of is None:
            raise NotFound(f"there is no job {id_} to depend on", job_id=id_)


def _newest_states(session: Session, ids: set[int]) -> tuple[dict[int, DependencyState], set[int]]:
    """Return the states of these jobs by id, and the ids of jobs that may end before this transaction does.

    For a failed job, the state is that of its newest replay.
    """
    open_ids = set(session.pin(ids))
    states = session.dependency_states(ids)
    pending = deque(states)
    while pending:
        id_ = pending.popleft()
        replay_id = states[id_].replay if states[id_].has_failed else None
        if replay_id is None:
            continue
        open_ids |= session.pin([replay_id])
        replays = session.dependency_states([replay_id])
        if replay_id in replays:
            states[id_] = replays[replay_id]
            pending.append(id_)
    return states, open_ids


def _insert(session: Session, commands: Sequence[c.EnqueueLinked], ids: list[int]) -> tuple[set[int], list[Decision]]:
    """Write the jobs under their ids, and return the places of the new ones.

    If another job has the dedupe key, the id is replaced by that job's. Return also what was changed in such jobs.
    """
    keyed = [place for place in in_order(commands) if commands[place].dedupe_key is not None]
    new_places = set(range(len(commands)))
    changes: list[Decision] = []
    windows.lock_key_holders(session, (commands[place] for place in keyed))
    for place in keyed:
        row, change = windows.enqueue_keyed(session, _with_ids(commands[place], ids, place))
        if not row.is_new:
            ids[place] = row.job_id
            new_places.discard(place)
        changes += [] if change is None else [change]
    keyless = [_with_ids(command, ids, place) for place, command in enumerate(commands) if command.dedupe_key is None]
    if keyless:
        session.enqueue(keyless)
    return new_places, changes


def _with_ids(command: c.EnqueueLinked, ids: Sequence[int], place: int) -> c.Enqueue:
    """Return the command for the store: with the job's id and the ids of its dependencies, not claimable before they end."""
    if not command.depends_on and not command.after:
        return msgspec.structs.replace(command, job_id=ids[place], bare=False)
    payload = command.payload
    if command.after:
        on = tuple(sorted({*command.depends_on, *(ids[other] for other in command.after)}))
        payload = msgspec.structs.replace(payloads.decode(payloads.EnqueuedPayload, payload), depends_on=on).encode()
    return msgspec.structs.replace(command, job_id=ids[place], payload=payload, available_at=NEVER, delay_us=0, bare=False)


def _link(session: Session, commands: Sequence[c.EnqueueLinked], edges: Edges, open_ids: set[int]) -> list[Decision]:
    """Save the edges. Then unblock jobs without unmet dependencies, and end jobs with failed ones."""
    if not edges:
        return []
    unmet = {job_id: [one for one in on if not one.is_met] for job_id, on in edges.items()}
    session.link(
        {job_id: [one.id for one in on] for job_id, on in edges.items()},
        {job_id: [one.id for one in on] for job_id, on in unmet.items() if on},
        open_ids,
    )
    return _decide_linked(session, unmet, commands[0].request_id, is_replay=commands[0].replay_of is not None)


def _decide_linked(session: Session, unmet: Edges, request_id: str | None, *, is_replay: bool = False) -> list[Decision]:
    """Unblock jobs without unmet dependencies, and end those with a failed one, unless their policy is to wait."""
    failed: dict[int, DependencyState] = {}
    if not is_replay:
        failed = {job_id: next(one for one in on if one.has_failed) for job_id, on in unmet.items() if _has_failed(on)}
    due = [job_id for job_id, on in unmet.items() if not on or job_id in failed]
    if not due:
        return []
    now, commands = session.now(), []
    for job_id, job in sorted(session.load(due, lock=False).items()):
        cause = failed.get(job_id)
        command = unblock_command(job_id, None, request_id) if cause is None else failure_command(job, cause, request_id)
        if command is not None:
            commands.append((job, command))
    decisions = decide_and_save(session, commands, now)
    ended = [dependency_of(one.job) for one in decisions if one.job.status in TERMINAL]
    return decisions + (cascade(session, ended, now, request_id) if ended else [])


def _has_failed(states: Iterable[DependencyState]) -> bool:
    return any(one.has_failed for one in states)


def link_dependents(session: Session, job_ids: Sequence[int], request_id: str | None) -> tuple[set[int], list[Decision]]:
    """Register these jobs as dependents of the jobs they wait for, or resolve them if those have ended.

    This is for jobs that were created in a caller's own transaction, or while another transaction had locked a dependency.
    Return the ids that are linked now, and the decisions. The other ids have a row that another transaction has locked.
    """
    edges = session.depends_on(job_ids)
    locked_ids = session.try_lock({*job_ids, *(on_id for on in edges.values() for on_id in on)})
    lockable = {id_: on for id_, on in edges.items() if id_ not in locked_ids and locked_ids.isdisjoint(on)}
    states, open_ids = _newest_states(session, {on_id for on in lockable.values() for on_id in on})
    unusable_ids = locked_ids | open_ids
    for on_id, state in states.items():
        if state.id != on_id and state.id not in unusable_ids:
            session.move_dependents(on_id, state.id)
    unmet: Edges = {}
    for id_, on in lockable.items():
        known = {states[on_id].id: states[on_id] for on_id in on if on_id in states}
        if unusable_ids.isdisjoint(known):
            unmet[id_] = [one for one in known.values() if not one.is_met]
    session.clear_links(unmet)
    waiting = {id_ for id_, job in session.load(list(unmet), lock=False).items() if job.is_waiting} if unmet else set()
    unmet_ids = {id_: [one.id for one in on] for id_, on in unmet.items() if id_ in waiting}
    if unmet_ids:
        session.set_waits(unmet_ids, limited=False)
    return set(unmet), _decide_linked(session, {id_: on for id_, on in unmet.items() if id_ in waiting}, request_id)


class Refs:
    """The names, or refs, that the items of one call give each other."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._wanted: dict[int, list[str]] = {}

    def take(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the item without its ref, and with only ids in `depends_on`. Remember the names."""
        rest = dict(item)
        ref = rest.pop("ref", None)
        if ref is not None:
            if limits.check_name("ref", ref) in self._places:
                raise ValidationError(f"two items have the ref {ref!r}", field="ref")
            self._places[ref] = place
        given = rest.get("depends_on")
        if isinstance(given, list | tuple | set | frozenset):
            self._wanted[place] = [limits.check_name("depends_on", one) for one in given if isinstance(one, str)]
            rest["depends_on"] = [one for one in given if not isinstance(one, str)]
            if self._wanted[place] and rest.get("on_dependency_failure") is None:
                rest["on_dependency_failure"] = ON_FAILURE_DEFAULT
        return rest

    def link(self, commands: Sequence[c.Enqueue]) -> list[c.Enqueue]:
        """Return the commands of the call, each with the places of the items that it depends on."""
        linked = [command if isinstance(command, c.EnqueueLinked) else _refs_of(command) for command in commands]
        for place, names in self._wanted.items():
            after = tuple(sorted({self._place(place, name) for name in names}))
            limits.check_count("depends_on", len(after) + len(linked[place].depends_on), limits.DEPENDENCIES_MAX)
            linked[place] = msgspec.structs.replace(linked[place], after=after)
        in_order(linked)
        return list(linked)

    def _place(self, place: int, name: str) -> int:
        if name not in self._places:
            raise ValidationError(f"no item has the ref {name!r}", field="depends_on", item=place)
        return self._places[name]


def _refs_of(command: c.Enqueue) -> c.EnqueueLinked:
    return c.EnqueueLinked(**{name: getattr(command, name) for name in c.Enqueue.__struct_fields__})


def in_order(commands: Sequence[c.EnqueueLinked]) -> list[int]:
    """Return the places of a call in an order in which each comes after its dependencies. Raise ValidationError for a cycle."""
    missing = [len(command.after) for command in commands]
    following: dict[int, list[int]] = {}
    for place, command in enumerate(commands):
        for other in command.after:
            following.setdefault(other, []).append(place)
    order = [place for place, count in enumerate(missing) if count == 0]
    for done in order:
        for place in following.get(done, ()):
            missing[place] -= 1
            if missing[place] == 0:
                order.append(place)
    if len(order) < len(commands):
        stuck = next(place for place, count in enumerate(missing) if count)
        raise ValidationError("these items depend on each other in a cycle", field="depends_on", item=stuck)
    return order
