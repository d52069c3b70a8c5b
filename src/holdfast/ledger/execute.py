"""A group of calls inside one transaction: request ids → rows → decide → rows and events.

Commands on one job keep their order: they go in separate rounds. Within a round, hot verbs go as one statement; whatever its
guards do not match is loaded, decided and saved one by one. A refusal is that command's answer and touches nothing else.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core.audit import fold
from holdfast.core.lifecycle import Outcome, decide, replay_of
from holdfast.core.model import HELD, TAIL, TERMINAL, Actor, Event, EventType, Job, Phase, Status
from holdfast.core.signing import BARE, is_plain
from holdfast.errors import Conflict, HoldfastError, IdempotencyConflict
from holdfast.ledger import answers, linked, telling
from holdfast.ledger.appended import answer_appends
from holdfast.ledger.compensate import compensate
from holdfast.ledger.door import Call
from holdfast.ledger.notary import Notary, Sitting
from holdfast.store.base import Change, EventFilter, Kept, LetterFilter, Made, Session

SETTLED = "settled"
"""What a completion in bulk answers: it is done."""


class Item(NamedTuple):
    """One command's place in its call."""

    call: Call
    place: int
    command: Any

    def answer(self, value: Any) -> None:
        self.call.answers[self.place] = value


Runner = Callable[[Session, Sequence[Item], Sitting], None]


def execute(session: Session, calls: Sequence[Call], notary: Notary, *, careful: bool = False) -> None:
    """Answer every call. Runs again from the start if the transaction is run again.

    A hot statement may lock its rows in whatever order its plan finds them. Where that has led to a deadlock, a `careful` run
    locks them beforehand, in the one order that everybody keeps.
    """
    if careful:
        ids = {command.job_id for call in calls for command in call.commands if isinstance(command, c.JobCommand)}
        session.lock(session.downstream(ids))
    for call in calls:
        call.answers = [None] * len(call.commands)
        call.wakes = set()
        call.changed = False
        call.outcomes = []
    fresh, twins = _answer_repeats(session, calls)
    sitting = notary.sit(session)
    if len(fresh) == 1 and isinstance(fresh[0].commands[0], c.Settle) and _distinct(fresh[0].commands):
        _settle_call(session, fresh[0], sitting)
    else:
        for turn in _rounds(fresh):
            for kind, items in turn.items():
                _RUNNERS.get(kind, _decide_each)(session, items, sitting)
    answer_appends(session, fresh)
    _keep(session, fresh)
    if twins:
        execute(session, twins, notary)


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


# Request ids


def _key(call: Call) -> tuple[str, str]:
    command = call.commands[0]
    assert command.request_id is not None
    # No caller's own id can have a control character in it.
    return command.actor.name, f"{command.request_id}\x1f{call.chunk}" if call.chunk else command.request_id


def _answer_repeats(session: Session, calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Calls still to be run, and those that repeat one of them within this very group."""
    keys = [_key(call) for call in calls if call.repeat]
    if not keys:
        return list(calls), []
    known = session.find_requests(keys)
    fresh: list[Call] = []
    twins: list[Call] = []
    seen: set[tuple[str, str]] = set()
    for call in calls:
        kept = known.get(_key(call)) if call.repeat else None
        if kept is not None:
            call.answers = _repeat(session, call, kept)
        elif call.repeat and _key(call) in seen:
            twins.append(call)
        else:
            fresh.append(call)
            if call.repeat:
                seen.add(_key(call))
    return fresh, twins


def repeats(session: Session, who: Actor, request_id: str, verb: str, body_hash: bytes) -> bool:
    """Whether this setting was made by this request before; if not, it is noted that it is now."""
    if kept_answer(session, who, request_id, verb, body_hash) is not None:
        return True
    session.keep_requests([Kept(who.name, request_id, verb, body_hash, answers.NONE)])
    return False


def kept_answer(session: Session, who: Actor, request_id: str, verb: str, body_hash: bytes) -> bytes | None:
    """What this request was answered before; None where it was not. Raises where it was another request."""
    key = (who.name, request_id)
    kept = session.find_requests([key]).get(key)
    if kept is not None and (kept.verb, kept.body_hash) != (verb, body_hash):
        raise _conflict(kept)
    return None if kept is None else kept.answer


def _conflict(kept: Kept) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"request id {kept.request_id!r} was used by {kept.actor!r} for another {kept.verb}",
        request_id=kept.request_id,
        actor=kept.actor,
    )


def _repeat(session: Session, call: Call, kept: Kept) -> list[Any]:
    """What the first call answered; nothing is changed."""
    if (kept.verb, kept.body_hash) != (call.verb, call.body_hash):
        return [_conflict(kept)] * len(call.commands)
    saved = answers.decode(kept.answer)
    if call.verb == "replay_many":
        return [[item.error() or _job_at(session, "replay", item, None) for item in saved.items]]
    if call.verb == "claim":
        found = session.load([item.job_id for item in saved.items], lock=False)
        jobs = [found[item.job_id] for item in saved.items if item.job_id in found]
        return [[job for job in jobs if job.status in HELD and _drawn(job) == saved.token]]
    return [item.error() or _job_at(session, call.verb, item, saved.token) for item in saved.items]


def _drawn(job: Job) -> str | None:
    """The part of a job's token that was drawn for its claim."""
    return None if job.token is None else job.token.partition(TAIL)[0]


def _job_at(session: Session, verb: str, item: answers.Item, token: str | None) -> Any:
    """The job as it was right after the change that was answered."""
    job = fold(session.events(EventFilter(job_id=item.job_id, rev_max=item.rev, limit=1_000_000)))
    if job is None:
        return IdempotencyConflict(f"job {item.job_id} has been pruned since", job_id=item.job_id)
    if verb in ("enqueue", "replay"):
        return answers.Found(job, item.is_new)
    if verb in ("start", "heartbeat", "complete"):
        return _change(job)
    if token is not None:
        now = session.load([job.id], lock=False).get(job.id)
        if now is not None and now.token == token and now.status in HELD:
            return msgspec.structs.replace(job, token=token)
    return job


def _change(job: Job) -> Change:
    return Change(job.id, job.rev, job.status, job.updated_at, job.lease_expires_at, job.phase is Phase.ABORTING)


def _keep(session: Session, calls: Iterable[Call]) -> None:
    rows = []
    for call in calls:
        if call.keep and any(map(_is_kept, call.answers)):
            actor, request_id = _key(call)
            rows.append(Kept(actor, request_id, call.verb, call.body_hash, answers.encode(call)))
    if rows:
        session.keep_requests(rows)


def _is_kept(answer: Any) -> bool:
    """Refusals, and lists with nothing else in them, are not kept."""
    return any(map(_is_kept, answer)) if isinstance(answer, list) else not isinstance(answer, HoldfastError)


# Verbs that make or find jobs


def _enqueue(session: Session, items: Sequence[Item], _: Sitting) -> None:
    """In the items' order, so that ids are too; those without a key go together."""
    for keyed, group in groupby(items, _is_keyed):
        run = list(group)
        if keyed:
            for item in run:
                _enqueue_keyed(session, item)
        else:
            for (call, place, command), made in zip(run, session.enqueue([item[2] for item in run]), strict=True):
                call.answers[place] = made
                _note_work(call, command)


def _enqueue_linked(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    """Call by call: the jobs of one may depend on each other."""
    for _, group in groupby(items, lambda item: id(item.call)):
        run = list(group)
        made = linked.make(session, [item.command for item in run])
        for item, answer in zip(run, made.answers, strict=True):
            item.answer(answer)
            if answer.is_new:
                _note_work(item.call, item.command)
        _note_told(run[0].call, made.outcomes)


def _note_told(call: Call, outcomes: Iterable[Outcome]) -> None:
    """What was decided about jobs that nobody named."""
    for outcome in outcomes:
        call.outcomes.append(outcome)
        if outcome.job.status is Status.QUEUED:
            call.wakes.add(outcome.job.queue)


def _is_keyed(item: Item) -> bool:
    return item[2].dedupe_key is not None


def _note_work(call: Call, command: c.Enqueue) -> None:
    """Delayed work rings too: whoever is idle learns when to look."""
    call.changed = True
    call.wakes.add(command.queue)


def _enqueue_keyed(session: Session, item: Item) -> None:
    made = session.enqueue_keyed(item.command)
    if made.is_new:
        item.answer(made)
        _note_work(item.call, item.command)
    else:
        item.answer(answers.Found(session.load([made.job_id], lock=False)[made.job_id], False))


def _claim(session: Session, items: Sequence[Item], _: Sitting) -> None:
    for item in items:
        held = session.claim(item.command)
        item.answer(held)
        item.call.changed = item.call.changed or bool(held)


def _replay(session: Session, items: Sequence[Item], _: Sitting) -> None:
    for item in items:
        try:
            item.answer(_replay_one(session, item, item.command))
        except HoldfastError as refusal:
            item.answer(refusal)


def _replay_many(session: Session, items: Sequence[Item], _: Sitting) -> None:
    """Each dead letter by itself: one that is refused does not hurt the others."""
    for item in items:
        command: c.ReplayMany = item.command
        found: list[answers.Found | HoldfastError] = []
        ids = session.dead_letters(letters(command))
        session.lock(ids)
        for id_ in ids:
            try:
                found.append(_replay_one(session, item, c.Replay(actor=command.actor, request_id=command.request_id, job_id=id_)))
            except HoldfastError as refusal:
                refusal.context.setdefault("job_id", id_)
                found.append(refusal)
        item.answer(found)


def letters(chosen: c.ReplayMany) -> LetterFilter:
    """Which dead letters a command means."""
    fields = {field: getattr(chosen, field) for field in LetterFilter.__struct_fields__}
    return LetterFilter(**fields)


def _replay_one(session: Session, item: Item, command: c.Replay) -> answers.Found:
    job = session.load([command.job_id], lock=True).get(command.job_id)
    if job is None or (command.expected_rev is not None and command.expected_rev != job.rev):
        decide(job, command, 0)
    assert job is not None
    fresh = replay_of(job, command)
    living = session.live_replay(job.id)
    if living is not None:
        return answers.Found(session.load([living], lock=False)[living], False)
    made = _make_replay(session, item.call, fresh)
    if not made.is_new:
        raise Conflict(f"the dedupe key {fresh.dedupe_key!r} is held by job {made.job_id}", holder=made.job_id, rev=job.rev)
    session.hand_on(job.id, made.job_id)
    item.call.wakes.add(job.queue)
    item.call.changed = True
    return answers.Found(session.load([made.job_id], lock=False)[made.job_id], True)


def _make_replay(session: Session, call: Call, fresh: c.Enqueue) -> Made:
    if isinstance(fresh, c.EnqueueLinked):
        made = linked.make(session, [fresh])
        _note_told(call, made.outcomes)
        return Made(made.answers[0].job.id, 0, made.answers[0].is_new)
    return session.enqueue([fresh])[0] if fresh.dedupe_key is None else session.enqueue_keyed(fresh)


# Verbs on a job


def _hot(run: Callable[[Session], Callable[[Sequence[Any]], list[Change | None]]]) -> Runner:
    def runner(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
        plain, rest = _parted(items)
        if plain:
            rest += _ran(plain, run(session)([item.command for item in plain]))
        if rest:
            _decide_each(session, rest, sitting)

    return runner


def _parted(items: Sequence[Item]) -> tuple[Sequence[Item], list[Item]]:
    """Those that the statements for unsigned commands may serve, and the others. A token says itself what its holder owes."""
    if not any(_is_odd(item[2]) for item in items):
        return items, []
    plain: list[Item] = []
    rest: list[Item] = []
    for item in items:
        command = item[2]
        (plain if command.signed is None and command.fence.signed in BARE[type(command)] else rest).append(item)
    return plain, rest


def _is_odd(command: Any) -> bool:
    """Signed, or by what its token says perhaps to be."""
    return command.signed is not None or TAIL in command.fence.token


def _ran(items: Sequence[Item], changes: Sequence[Change | None]) -> list[Item]:
    """Answer those that were done; the others are still to be decided."""
    refused = []
    for item, change in zip(items, changes, strict=True):
        if change is None:
            refused.append(item)
        else:
            item.call.answers[item.place] = change
            item.call.changed = True
    return refused


def _beat(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    """Signed beats have a statement of their own."""
    plain, others = _parted(items)
    signed: list[Item] = []
    rest: list[Item] = []
    for item in others:
        given = item.command.signed
        (signed if given is not None and is_plain(given.said) and sitting.accepts(given) else rest).append(item)
    if signed:
        rest += _ran(signed, session.beat_signed([item.command for item in signed]))
    if plain:
        rest += _ran(plain, session.heartbeat([item.command for item in plain]))
    if rest:
        _decide_each(session, rest, sitting)


def _settle_call(session: Session, call: Call, sitting: Sitting) -> None:
    """A worker's everyday completions: no job is in it twice and nothing else goes with it."""
    if any(map(_is_odd, call.commands)):
        _settle(session, [Item(call, place, command) for place, command in enumerate(call.commands)], sitting)
        return
    done = session.settle(call.commands)  # type: ignore[arg-type]
    refused = [Item(call, place, command) for place, command in enumerate(call.commands) if command.job_id not in done]  # type: ignore[attr-defined]
    call.answers = [SETTLED] * len(call.commands)
    call.changed = len(refused) < len(call.commands)
    if refused:
        _decide_each(session, refused, sitting)


def _settle(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    plain, rest = _parted(items)
    done = session.settle([item.command for item in plain]) if plain else ()
    for item in plain:
        if item.command.job_id in done:
            item.call.answers[item.place] = SETTLED
            item.call.changed = True
        else:
            rest.append(item)
    if rest:
        _decide_each(session, rest, sitting)


def _decide_each(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    ids = [item.command.job_id for item in items]
    jobs = session.load(ids, lock=True)
    if isinstance(items[0].command, c.Complete):
        # Many at once, and so their dependents too: one by one they could be locked in any order.
        session.lock_waiting(ids)
    now = session.now()
    for item in items:
        try:
            item.answer(_decide_one(session, jobs, item, now, sitting))
        except HoldfastError as refusal:
            item.answer(_settled(session, item.command) or refusal)


def _decide_one(session: Session, jobs: dict[int, Job], item: Item, now: int, sitting: Sitting) -> Any:
    """`jobs` are those of the whole round: what is decided here may change others of them."""
    command = item.command
    job = jobs.get(command.job_id)
    if isinstance(command, c.ClaimJob) and job is not None:
        policy, paused = session.policy_of(job), session.paused(job.queue)
        command = msgspec.structs.replace(command, policy=policy, paused=paused)
    outcome = sitting.decide(job, command, now, own=item.call.verb != "append")
    if outcome.events:
        session.save(outcome.job, outcome.events)
        item.call.changed = True
        item.call.outcomes.append(outcome)
        if outcome.job.status is Status.QUEUED:
            item.call.wakes.add(outcome.job.queue)
        if outcome.job.status in TERMINAL and not isinstance(command, c.Annotate):
            told = telling.told_of(session, outcome.job, now, command.request_id)
            _note_told(item.call, told)
            jobs |= {other.job.id: other.job for other in told}
    if isinstance(command, c.Sweep):
        return tuple(event.type for event in outcome.events)
    return _change(outcome.job) if isinstance(command, _CHANGE_ONLY) else outcome.job


def apply(session: Session, call: Call, command: c.JobCommand, sitting: Sitting) -> Job | None:
    """Decide one of several commands of a call, and save what it says; the job afterwards.

    A refusal is raised, and what was saved before it must not be committed.
    """
    jobs = session.load([command.job_id], lock=True)
    before = len(call.outcomes)
    _decide_one(session, jobs, Item(call, 0, command), session.now(), sitting)
    return call.outcomes[before].job if len(call.outcomes) > before else jobs.get(command.job_id)


_CHANGE_ONLY = (c.Start, c.Heartbeat, c.Complete)
_OWN_EVENTS: dict[type[c.Command], frozenset[EventType]] = {
    c.Start: frozenset({EventType.STARTED, EventType.RESUMED}),
    c.Complete: frozenset({EventType.SUCCEEDED}),
    c.Settle: frozenset({EventType.SUCCEEDED}),
    c.CompleteGated: frozenset({EventType.SUCCEEDED}),
}


def _settled(session: Session, command: Any) -> Change | HoldfastError | None:
    """A start or completion that was refused because this very request had already done it: the event carries its id."""
    kinds = _OWN_EVENTS.get(type(command))
    if kinds is None or command.request_id is None:
        return None
    event = session.find_event(command.job_id, command.request_id)
    if event is None or event.actor.name != command.actor.name:
        return None
    if event.type not in kinds or (isinstance(command, c.Complete) and event.payload != command.payload):
        return IdempotencyConflict(
            f"request id {command.request_id!r} was used for another {event.type.value}", request_id=command.request_id
        )
    return _event_change(event)


def _compensate(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    """Under the job's own lock, so that one undo job is made and one note written."""
    jobs = session.load([item.command.job_id for item in items], lock=True)
    now = session.now()
    for item in items:
        job = jobs.get(item.command.job_id)
        try:
            made = () if job is None else compensate(session, job, item.command, now, sitting)
        except HoldfastError as refusal:
            item.answer(refusal)
            continue
        item.answer(made)
        if job is not None and made:
            item.call.changed = True
            item.call.wakes.add(job.queue)


def _tell(session: Session, items: Sequence[Item], _: Sitting) -> None:
    """All of them together, so that they are not more than one transaction may hold. The first answers for all."""
    first = items[0]
    told = telling.tell_on(session, [item.command.job_id for item in items], session.now(), first.command.request_id)
    for item in items:
        item.answer(())
    first.answer(tuple(event.type for outcome in told for event in outcome.events))
    _note_told(first.call, told)
    first.call.changed = first.call.changed or bool(told)


def _event_change(event: Event) -> Change:
    return Change(event.job_id, event.rev, event.to_status, event.received_at)


_RUNNERS: dict[type[c.Command], Runner] = {
    c.Enqueue: _enqueue,
    c.EnqueueLinked: _enqueue_linked,
    c.ClaimNext: _claim,
    c.Replay: _replay,
    c.ReplayMany: _replay_many,
    c.Compensate: _compensate,
    c.Tell: _tell,
    c.Start: _hot(lambda session: session.start),
    c.Heartbeat: _beat,
    c.Complete: _hot(lambda session: session.complete),
    c.Settle: _settle,
}
