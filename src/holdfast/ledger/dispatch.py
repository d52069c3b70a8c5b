"""Run a group of requests in one transaction: request ids, then rows, `decide`, rows and events.

Commands on one job keep their order: they go in separate rounds. Within a round, the hot verbs are one statement for all their
commands. A command that the statement's guards do not match is loaded, decided and saved by itself. A refused command gets
the error as its answer, and touches nothing else.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from holdfast.core import commands as c
from holdfast.core.decide import decide, replay_command
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import SIGNED_SEPARATOR, EventRecord, Role
from holdfast.core.payloads import counter_of
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.ledger import decisions, dependencies, idempotency
from holdfast.ledger.decisions import decide_each
from holdfast.ledger.idempotency import answer_repeats, keep_answers
from holdfast.ledger.requests import Item, Request, Result, Runner
from holdfast.ledger.signing import Signer, TransactionSigner
from holdfast.proof.signing import UNSIGNED_UNDER, is_plain_beat
from holdfast.store.base import AppliedCommand, DeadLetterFilter, EnqueuedRow, Session

SETTLED = "settled"
"""The answer to a completion in bulk."""


def in_one_statement(run: Callable[[Session], Callable[[Sequence[Any]], list[AppliedCommand | None]]]) -> Runner:
    """Return a runner that uses one statement for all its commands. Those that the statement skips are decided one by one."""

    def runner(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
        plain, rest = _split_plain(items)
        if plain:
            rest += _answer_done(plain, run(session)([item.command for item in plain]))
        if rest:
            decide_each(session, rest, signer)

    return runner


def complete(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Complete jobs. A command with a validator's objection is decided by itself: the statement cannot refuse it."""
    accepted = [item for item in items if item.command.objection is None]
    if accepted:
        _complete_plain(session, accepted, signer)
    if len(accepted) < len(items):
        decide_each(session, [item for item in items if item.command.objection is not None], signer)


_complete_plain = in_one_statement(lambda session: session.complete)


def _split_plain(items: Sequence[Item]) -> tuple[Sequence[Item], list[Item]]:
    """Split the items into those for the statements for unsigned commands, and the others.

    The token itself says which commands its holder has to sign.
    """
    if not any(_may_be_signed(item[2]) for item in items):
        return items, []
    plain: list[Item] = []
    rest: list[Item] = []
    for item in items:
        command = item[2]
        (plain if command.signed is None and command.fence.signed in UNSIGNED_UNDER[type(command)] else rest).append(item)
    return plain, rest


def _may_be_signed(command: Any) -> bool:
    """Return whether the command is signed, or may have to be according to its token."""
    return command.signed is not None or SIGNED_SEPARATOR in command.fence.token


def _answer_done(items: Sequence[Item], changes: Sequence[AppliedCommand | None]) -> list[Item]:
    """Answer the items that the statement has done, and return the others, which are still to be decided."""
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
    plain, others = _split_plain(items)
    signed: list[Item] = []
    rest: list[Item] = []
    for item in others:
        given = item.command.signed
        (signed if given is not None and is_plain_beat(given.said) and signer.accepts(given) else rest).append(item)
    if signed:
        rest += _answer_done(signed, session.beat_signed([item.command for item in signed]))
    if plain:
        rest += _answer_done(plain, session.heartbeat([item.command for item in plain]))
    if rest:
        decide_each(session, rest, signer)


def settle_all(session: Session, result: Result, signer: TransactionSigner) -> None:
    """Complete all jobs of a worker's request. No job is in it twice."""
    commands: Sequence[Any] = result.request.commands
    if any(map(_may_be_signed, commands)):
        settle(session, [Item(result, place, command) for place, command in enumerate(commands)], signer)
        return
    done = session.settle(commands)
    skipped = [Item(result, place, command) for place, command in enumerate(commands) if command.job_id not in done]
    result.answers = [SETTLED] * len(commands)
    result.changed = result.changed or len(skipped) < len(commands)
    if skipped:
        decide_each(session, skipped, signer)


def settle(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    plain, rest = _split_plain(items)
    done = session.settle([item.command for item in plain]) if plain else ()
    for item in plain:
        if item.command.job_id in done:
            item.result.answers[item.place] = SETTLED
            item.result.changed = True
        else:
            rest.append(item)
    if rest:
        decide_each(session, rest, signer)


def enqueue(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """Enqueue in the order of the items, so that ids have the same order. Items without a dedupe key share a statement."""
    for keyed, group in groupby(items, _is_keyed):
        run = list(group)
        if keyed:
            for item in run:
                _enqueue_keyed(session, item)
        else:
            for (result, place, command), made in zip(run, session.enqueue([item[2] for item in run]), strict=True):
                result.answers[place] = made
                _wake_queue(result, command)


def enqueue_linked(session: Session, items: Sequence[Item], signer: TransactionSigner) -> None:
    """Enqueue jobs with dependencies, one call after the other: the jobs of one call may depend on each other."""
    for _, group in groupby(items, lambda item: id(item.result)):
        run = list(group)
        made = dependencies.make_linked(session, [item.command for item in run])
        for item, answer in zip(run, made.answers, strict=True):
            item.answer(answer)
            if answer.is_new:
                _wake_queue(item.result, item.command)
        run[0].result.note(made.outcomes)


def _is_keyed(item: Item) -> bool:
    return item[2].dedupe_key is not None


def _wake_queue(result: Result, command: c.Enqueue) -> None:
    """Wake idle workers of the command's queue, also for a delayed job, so that they can compute when to claim again."""
    result.changed = True
    result.queues.add(command.queue)


def _enqueue_keyed(session: Session, item: Item) -> None:
    made = session.enqueue_keyed(item.command)
    if made.is_new:
        item.answer(made)
        _wake_queue(item.result, item.command)
    else:
        item.answer(idempotency.FoundJob(session.load([made.job_id], lock=False)[made.job_id], False))


def claim_next(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    for item in items:
        held = session.claim(item.command)
        item.answer(held)
        item.result.changed = item.result.changed or bool(held)


def replay(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    for item in items:
        try:
            item.answer(_replay_one(session, item, item.command))
        except HoldfastError as refusal:
            item.answer(refusal)


def replay_many(session: Session, items: Sequence[Item], _: TransactionSigner) -> None:
    """Replay each dead letter by itself, so that a refusal does not affect the others. Skip those already replayed."""
    for item in items:
        command: c.ReplayMany = item.command
        ids, skipped = _dead_letters(session, command)
        locked = session.try_lock([id_ for id_ in ids if id_ not in skipped])
        if not command.again:
            # Another transaction may have replayed some of them before this one locked them.
            skipped |= session.replayed([id_ for id_ in ids if id_ not in skipped and id_ not in locked])
        newest = session.newest_replays(skipped)
        replays = session.load(sorted(newest.values()), lock=False)
        found: list[idempotency.FoundJob | HoldfastError] = []
        for id_ in ids:
            if id_ in skipped:
                found.append(idempotency.FoundJob(replays[newest[id_]], False))
                continue
            try:
                if id_ in locked:
                    raise Unavailable(f"job {id_} is locked by another transaction", locked=True)
                one = c.Replay(actor=command.actor, request_id=command.request_id, job_id=id_, reason=command.reason)
                found.append(_replay_one(session, item, one))
            except HoldfastError as refusal:
                refusal.context.setdefault("job_id", id_)
                found.append(refusal)
        item.answer(found)


def _dead_letters(session: Session, command: c.ReplayMany) -> tuple[list[int], set[int]]:
    """Return the dead letters that the command selects, and those of them that are skipped.

    The skipped ones do not count for the limit, so a second call with the same limit continues where the first one ended.
    """
    fields = {field: getattr(command, field) for field in DeadLetterFilter.__struct_fields__}
    if command.again:
        return session.dead_letters(DeadLetterFilter(**fields)), set()
    ids = session.dead_letters(DeadLetterFilter(**{**fields, "limit": PAGE_MAX}))
    skipped = session.replayed(ids)
    fresh = [id_ for id_ in ids if id_ not in skipped]
    if len(fresh) > command.limit:
        ids = ids[: ids.index(fresh[command.limit])]
    return ids, skipped.intersection(ids)


def _replay_one(session: Session, item: Item, command: c.Replay) -> idempotency.FoundJob:
    job = session.load([command.job_id], lock=True).get(command.job_id)
    if job is None or (command.expected_rev is not None and command.expected_rev != job.rev):
        decide(job, command, 0)
    assert job is not None
    fresh = replay_command(job, command)
    living = session.live_replay(job.id)
    if living is not None:
        return idempotency.FoundJob(session.load([living], lock=False)[living], False)
    made = _make_replay(session, item.result, fresh)
    if not made.is_new:
        raise Conflict(f"the dedupe key {fresh.dedupe_key!r} is held by job {made.job_id}", holder=made.job_id, rev=job.rev)
    session.move_dependents(job.id, made.job_id)
    item.result.queues.add(job.queue)
    item.result.changed = True
    return idempotency.FoundJob(session.load([made.job_id], lock=False)[made.job_id], True)


def _make_replay(session: Session, result: Result, fresh: c.Enqueue) -> EnqueuedRow:
    if isinstance(fresh, c.EnqueueLinked):
        made = dependencies.make_linked(session, [fresh])
        result.note(made.outcomes)
        return EnqueuedRow(made.answers[0].job.id, 0, made.answers[0].is_new)
    return session.enqueue([fresh])[0] if fresh.dedupe_key is None else session.enqueue_keyed(fresh)


def answer_appends(session: Session, results: Iterable[Result]) -> None:
    """Answer each `append` with the last event that it made.

    If it was refused because the same statement is the newest of its signer already, answer with the event of that one.
    """
    for result in results:
        if result.request.verb == "append":
            [command] = result.request.commands
            found = _made_by(session, command)
            is_refused = isinstance(result.answers[0], HoldfastError)
            if found is not None and (not is_refused or _is_newest(session, found)):
                result.answers[0] = found


def _made_by(session: Session, command: Any) -> EventRecord | None:
    found = session.find_event(command.job_id, command.request_id)
    return found if found is not None and found.statement == command.signed.statement else None


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
        fresh, waiting = answer_repeats(session, waiting)
        locked = _lock_jobs(session, fresh) if careful or any(one.request.verb == "sweep" for one in fresh) else set()
        for result in fresh:
            if result.request.beats:
                _record_beats(session, result, locked, session_signer)
        if not locked and len(fresh) == 1 and _is_plain_settlement(fresh[0].request):
            settle_all(session, fresh[0], session_signer)
        else:
            for turn in _rounds(fresh):
                for kind, found in turn.items():
                    if items := _refuse_locked(found, locked) if locked else found:
                        _RUNNERS.get(kind, decisions.decide_each)(session, items, session_signer)
        answer_appends(session, fresh)
        keep_answers(session, fresh)
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


def _is_plain_settlement(request: Request) -> bool:
    """Return whether these are a worker's completions in bulk, with no job in it twice."""
    return isinstance(request.commands[0], c.CompleteInBatch) and _distinct(request.commands)


_NON_ENDING = (c.Heartbeat, c.Start, c.Resume, c.MoveJob, c.Reprioritise, c.Reschedule)
"""Commands that never end a job."""


def _lock_jobs(session: Session, results: Sequence[Result]) -> set[int]:
    """Lock the jobs of these requests and their dependents. Return the jobs that are locked, or have a locked dependent."""
    commands = [command for one in results for command in one.request.commands if isinstance(command, c.JobCommand)]
    locked = session.try_lock({command.job_id for command in commands})
    ending = {command.job_id for command in commands if not isinstance(command, _NON_ENDING)} - locked
    below = session.try_lock(set(session.downstream(ending)) - ending) if ending else set()
    if below:
        locked |= {job_id for job_id in ending if below.intersection(session.downstream([job_id]))}
    return locked


def _refuse_locked(items: Sequence[Item], locked: set[int]) -> list[Item]:
    """Refuse the commands on locked jobs, and return the others."""
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
    """Return whether no two commands are on the same job."""
    return not isinstance(commands[0], c.JobCommand) or len({command.job_id for command in commands}) == len(commands)


_RUNNERS: dict[type[c.Command], Runner] = {
    c.Enqueue: enqueue,
    c.EnqueueLinked: enqueue_linked,
    c.ClaimNext: claim_next,
    c.Replay: replay,
    c.ReplayMany: replay_many,
    c.Compensate: decisions.compensate_each,
    c.ContinueCascade: decisions.continue_cascades,
    c.LinkDependencies: decisions.link_each,
    c.Start: in_one_statement(lambda session: session.start),
    c.Heartbeat: heartbeat,
    c.Complete: complete,
    c.CompleteInBatch: settle,
}
