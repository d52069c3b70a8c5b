"""Run a group of requests in one transaction: request ids, then rows, `decide`, rows and events.

Commands on one job keep their order: they go in separate rounds. Within a round, the hot verbs are one statement for all their
commands. A command that the statement's guards do not match is loaded, decided and saved by itself. A
refused command gets the error as its answer and changes nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from holdfast.core import commands as c
from holdfast.core.decide import missing_job_error, replay_command, rev_conflict_error
from holdfast.core.model import SIGNED_SEPARATOR, EventRecord, Role
from holdfast.core.payloads import counter_of
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.ledger import decisions, dependencies, group_places, windows
from holdfast.ledger.decisions import decide_each
from holdfast.ledger.requests import FoundJob, Item, Request, Result, Runner, answer_repeats, keep_answers
from holdfast.ledger.signing import Signer, TransactionSigner
from holdfast.proof.signing import UNSIGNED_UNDER, is_plain_beat
from holdfast.store.session import AppliedCommand, EnqueuedRow, Session

SETTLED = "settled"
"""The answer to a completion by `settle_many`."""


def in_one_statement(run: Callable[[Session], Callable[[Sequence[Any]], list[AppliedCommand | None]]]) -> Runner:
    """Return a runner that uses one statement for all its commands. Those that the statement skips are decided one by one."""

    def runner(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
        unsigned, rest = _split_unsigned(items)
        if unsigned:
            rest += _answer_applied(unsigned, run(session)([item.command for item in unsigned]))
        if rest:
            decide_each(session, rest, signer)

    return runner


def complete(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Complete jobs. A command with a validator's objection is decided by itself: the statement cannot refuse it."""
    accepted = [item for item in items if item.command.objection is None]
    if accepted:
        _complete_accepted(session, accepted, signer)
    if len(accepted) < len(items):
        decide_each(session, [item for item in items if item.command.objection is not None], signer)


_complete_accepted = in_one_statement(lambda session: session.complete)


def _split_unsigned(items: Sequence[Item]) -> tuple[Sequence[Item], list[Item]]:
    """Split the items into those whose commands need no signature, and the others.

    The token itself says which commands its holder has to sign.
    """
    if not any(_may_be_signed(command) for _, _, command in items):
        return items, []
    unsigned: list[Item] = []
    rest: list[Item] = []
    for item in items:
        command = item.command
        (unsigned if command.signed is None and command.fence.signed in UNSIGNED_UNDER[type(command)] else rest).append(item)
    return unsigned, rest


def _may_be_signed(command: Any) -> bool:
    """Return whether the command is signed, or may have to be according to its token."""
    return command.signed is not None or SIGNED_SEPARATOR in command.fence.token


def _answer_applied(items: Sequence[Item], changes: Sequence[AppliedCommand | None]) -> list[Item]:
    """Answer the items that the statement has applied, and return the others, which are still to be decided."""
    skipped = []
    for item, change in zip(items, changes, strict=True):
        if change is None:
            skipped.append(item)
        else:
            item.result.answers[item.place] = change
            item.result.changed = True
    return skipped


def heartbeat(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Record heartbeats. Signed heartbeats have a statement of their own."""
    unsigned, others = _split_unsigned(items)
    signed: list[Item] = []
    rest: list[Item] = []
    for item in others:
        statement = item.command.signed
        is_plain = statement is not None and is_plain_beat(statement.content) and signer.accepts(statement)
        (signed if is_plain else rest).append(item)
    if signed:
        rest += _answer_applied(signed, session.beat_signed([item.command for item in signed]))
    if unsigned:
        rest += _answer_applied(unsigned, session.heartbeat([item.command for item in unsigned]))
    if rest:
        decide_each(session, rest, signer)


def settle_request(session: Session, result: Result, signer: TransactionSigner) -> None:
    """Settle all jobs of one request. No job may be in it twice. This is faster than `settle`: it makes no items."""
    commands: Sequence[Any] = result.request.commands
    if any(map(_may_be_signed, commands)):
        settle(session, [Item(result, place, command) for place, command in enumerate(commands)], signer)
        return
    settled = session.settle(commands)
    skipped = [Item(result, place, command) for place, command in enumerate(commands) if command.job_id not in settled]
    result.answers = [SETTLED] * len(commands)
    result.changed = result.changed or len(skipped) < len(commands)
    if skipped:
        decide_each(session, skipped, signer)


def settle(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Complete the jobs of `settle_many`."""
    unsigned, rest = _split_unsigned(items)
    settled = session.settle([item.command for item in unsigned]) if unsigned else ()
    for item in unsigned:
        if item.command.job_id in settled:
            item.result.answers[item.place] = SETTLED
            item.result.changed = True
        else:
            rest.append(item)
    if rest:
        decide_each(session, rest, signer)


def enqueue(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """Enqueue in the order of the items, so that ids have the same order. Items without a dedupe key share a statement."""
    for keyed, group in groupby(items, _is_keyed):
        if keyed:
            calls = list(group)
            windows.lock_key_holders(session, (item.command for item in calls))
            for item in calls:
                _enqueue_keyed(session, item)
        else:
            keyless = list(group)
            rows = session.enqueue([command for _, _, command in keyless])
            for (result, place, command), row in zip(keyless, rows, strict=True):
                result.answers[place] = row
                _wake_queue(result, command)


def enqueue_linked(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Enqueue jobs with dependencies, one call after the other: the jobs of one call may depend on each other."""
    for _, group in groupby(items, lambda item: id(item.result)):
        call = list(group)
        made = dependencies.make_linked(session, [item.command for item in call])
        for item, answer in zip(call, made.answers, strict=True):
            item.answer(answer)
            if answer.is_new:
                _wake_queue(item.result, item.command)
        call[0].result.note(made.decisions)
        call[0].result.changed = call[0].result.changed or bool(made.decisions)


def _is_keyed(item: Item) -> bool:
    return item.command.dedupe_key is not None


def _wake_queue(result: Result, command: c.Enqueue) -> None:
    """Wake idle workers of the command's queue, also for a delayed job, so that they can compute when to claim again."""
    result.changed = True
    result.queues.add(command.queue)


def _enqueue_keyed(session: Session, item: Item) -> None:
    row, change = windows.enqueue_keyed(session, item.command)
    if row.is_new:
        item.answer(row)
        _wake_queue(item.result, item.command)
        return
    if change is not None:
        item.result.note([change])
        item.result.changed = True
    item.answer(FoundJob(session.load([row.job_id], lock=False)[row.job_id], False))


def claim_next(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    for item in items:
        claimed = session.claim(item.command)
        item.answer(claimed)
        item.result.changed = item.result.changed or bool(claimed)


def replay(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    ids = [item.command.job_id for item in items]
    wanted = [item.command.job_id for item in items if not item.command.again]
    if wanted or len(ids) > 1:
        session.lock(ids)  # at once: locking them one by one would lock them in any order
    before = session.replayed(wanted) if wanted else {}
    for item in items:
        try:
            item.answer(_replay_one(session, item, item.command, before))
        except HoldfastError as refusal:
            item.answer(refusal)


def _replay_one(session: Session, item: Item, command: c.Replay, before: Mapping[int, int]) -> FoundJob:
    """Replay a job, unless a replay of it is live or is in `before`."""
    job = session.load([command.job_id], lock=True).get(command.job_id)
    if job is None:
        raise missing_job_error(command)
    if command.expected_rev is not None and command.expected_rev != job.rev:
        raise rev_conflict_error(job, command)
    enqueue_command = replay_command(job, command)
    known = session.live_replay(job.id) or before.get(job.id)
    if known is not None:
        return FoundJob(session.load([known], lock=False)[known], False)
    if job.dedupe_until is not None:
        session.take_key(job.id)  # the replay has it from now on
    place = None
    if job.group is not None:
        place = group_places.free_place(session, job)
        enqueue_command = replay_command(job, command, in_group=place is not None)
    row = enqueue_one(session, item.result, enqueue_command)
    if not row.is_new:
        key = enqueue_command.dedupe_key
        raise Conflict(f"the dedupe key {key!r} is held by job {row.job_id}", holder_id=row.job_id, rev=job.rev)
    session.move_dependents(job.id, row.job_id)
    if place is not None:
        session.take_group_place(place, row.job_id)
    item.result.queues.add(job.queue)
    item.result.changed = True
    return FoundJob(session.load([row.job_id], lock=False)[row.job_id], True)


def enqueue_one(session: Session, result: Result, command: c.Enqueue) -> EnqueuedRow:
    """Enqueue a job with any options. The row of another job is returned if that one has the dedupe key."""
    if isinstance(command, c.EnqueueLinked):
        made = dependencies.make_linked(session, [command])
        result.note(made.decisions)
        return EnqueuedRow(made.answers[0].job.id, 0, made.answers[0].is_new)
    if command.dedupe_key is None:
        return session.enqueue([command])[0]
    row, change = windows.enqueue_keyed(session, command)
    result.note([] if change is None else [change])
    return row


def answer_appends(session: Session, results: Iterable[Result]) -> None:
    """Answer each `append` with the last event that it made.

    If it was refused because the same statement is the newest of its signer already, answer with the event of that one.
    """
    for result in results:
        if result.request.verb == "append":
            [command] = result.request.commands
            event = _event_of(session, command)
            is_refused = isinstance(result.answers[0], HoldfastError)
            if event is not None and (not is_refused or _is_newest(session, event)):
                result.answers[0] = event
                result.repeated = is_refused


def _event_of(session: Session, command: Any) -> EventRecord | None:
    """Return the last event that carries the command's statement, or None."""
    event = session.find_event(command.job_id, command.request_id)
    return event if event is not None and event.statement == command.signed.statement else None


def _is_newest(session: Session, event: EventRecord) -> bool:
    """Return whether this is the newest signed event of its attempt. An event of the system must be the job's newest event."""
    job = session.load([event.job_id], lock=False)[event.job_id]
    if event.actor.role is not Role.WORKER or event.statement is None:
        return event.rev == job.rev
    return event.attempt == job.attempt and counter_of(event.statement) == job.counter


def execute(requests: Sequence[Request], signer: Signer, session: Session, *, careful: bool) -> list[Result]:
    """Run the requests and return a new result for each. If the transaction is run again, this is called again.

    A `careful` run waits for no row. It locks all jobs beforehand, and refuses as locked those that another transaction has.
    """
    session.careful = careful
    results = [Result(request) for request in requests]
    session_signer = signer.in_transaction(session)
    waiting: Sequence[Result] = results
    while waiting:
        # Requests that repeat one of the same group wait until that one is answered.
        to_run, waiting = answer_repeats(session, waiting)
        locked = _lock_jobs(session, to_run) if careful or any(one.request.verb == "sweep" for one in to_run) else set()
        for result in to_run:
            if result.request.beats:
                _record_beats(session, result, locked, session_signer)
        if not locked and len(to_run) == 1 and _settles_distinct_jobs(to_run[0].request):
            settle_request(session, to_run[0], session_signer)
        else:
            for items_by_type in _rounds(to_run):
                for command_type, items in items_by_type.items():
                    if unlocked := _refuse_locked(items, locked) if locked else items:
                        _RUNNERS.get(command_type, decisions.decide_each)(session, unlocked, session_signer)
        answer_appends(session, to_run)
        keep_answers(session, to_run)
    if changed := [result.queues for result in results if result.changed]:
        session.wake(set().union(*changed))
    return results


def _record_beats(session: Session, result: Result, locked: set[int], signer: TransactionSigner) -> None:
    """Record the last heartbeats of holders, before their outcomes.

    A refused heartbeat is dropped: its outcome is refused too, or was recorded before.
    """
    beats = [beat for beat in result.request.beats if beat.job_id not in locked]
    if not beats:
        return
    recorded = Result(Request("heartbeat", beats))
    heartbeat(session, [Item(recorded, place, beat) for place, beat in enumerate(beats)], signer)
    result.changed = result.changed or recorded.changed
    result.outcomes += recorded.outcomes
    result.queues |= recorded.queues


def _settles_distinct_jobs(request: Request) -> bool:
    """Return whether the request is one of `settle_many`, with no job in it twice."""
    return isinstance(request.commands[0], c.Settle) and _distinct(request.commands)


_NON_ENDING = (c.Heartbeat, c.Start, c.Resume, c.MoveJob, c.Reprioritise, c.Reschedule)
"""Commands that never end a job."""


def _lock_jobs(session: Session, results: Sequence[Result]) -> set[int]:
    """Lock the jobs of these requests and their dependents. Return the jobs that are locked, or have a locked dependent."""
    commands = [command for one in results for command in one.request.commands if isinstance(command, c.JobCommand)]
    locked = session.try_lock({command.job_id for command in commands})
    ending = {command.job_id for command in commands if not isinstance(command, _NON_ENDING)} - locked
    locked_dependents = session.try_lock(set(session.downstream(ending)) - ending) if ending else set()
    if locked_dependents:
        locked |= {job_id for job_id in ending if locked_dependents.intersection(session.downstream([job_id]))}
    return locked


def _refuse_locked(items: Sequence[Item], locked: set[int]) -> list[Item]:
    """Refuse the commands on locked jobs, and return the others."""
    unlocked = []
    for item in items:
        job_id = getattr(item.command, "job_id", None)
        if job_id in locked:
            item.answer(Unavailable(f"job {job_id} is locked by another transaction", locked=True, job_id=job_id))
            item.result.locked = True
        else:
            unlocked.append(item)
    return unlocked


def _rounds(results: Sequence[Result]) -> Iterable[dict[type[c.Command], list[Item]]]:
    """Return the commands by round and type. Commands on one job go in separate rounds, in their order."""
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
    """Return whether no two commands are on the same job."""
    return not isinstance(commands[0], c.JobCommand) or len({command.job_id for command in commands}) == len(commands)


_RUNNERS: dict[type[c.Command], Runner] = {
    c.Enqueue: enqueue,
    c.EnqueueLinked: enqueue_linked,
    c.ClaimNext: claim_next,
    c.Replay: replay,
    c.Compensate: decisions.compensate_each,
    c.ContinueCascade: decisions.continue_cascades,
    c.LinkDependencies: decisions.link_each,
    c.Start: in_one_statement(lambda session: session.start),
    c.Heartbeat: heartbeat,
    c.Complete: complete,
    c.Settle: settle,
}
