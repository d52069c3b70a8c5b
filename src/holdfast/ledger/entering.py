"""Verbs that make or find jobs."""

from collections.abc import Sequence
from itertools import groupby

from holdfast.core import commands as c
from holdfast.core.lifecycle import decide, replay_of
from holdfast.core.limits import PAGE_MAX
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.ledger import answers, linked
from holdfast.ledger.notary import Sitting
from holdfast.ledger.requests import Item, Result
from holdfast.store.base import LetterFilter, Made, Session


def enqueue(session: Session, items: Sequence[Item], _: Sitting) -> None:
    """In the items' order, so that ids are too; those without a key go together."""
    for keyed, group in groupby(items, _is_keyed):
        run = list(group)
        if keyed:
            for item in run:
                _enqueue_keyed(session, item)
        else:
            for (result, place, command), made in zip(run, session.enqueue([item[2] for item in run]), strict=True):
                result.answers[place] = made
                _note_work(result, command)


def enqueue_linked(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    """Call by call: the jobs of one may depend on each other."""
    for _, group in groupby(items, lambda item: id(item.result)):
        run = list(group)
        made = linked.make(session, [item.command for item in run])
        for item, answer in zip(run, made.answers, strict=True):
            item.answer(answer)
            if answer.is_new:
                _note_work(item.result, item.command)
        run[0].result.note(made.outcomes)


def _is_keyed(item: Item) -> bool:
    return item[2].dedupe_key is not None


def _note_work(result: Result, command: c.Enqueue) -> None:
    """Delayed jobs wake idle workers too, so that they know when to look again."""
    result.changed = True
    result.queues.add(command.queue)


def _enqueue_keyed(session: Session, item: Item) -> None:
    made = session.enqueue_keyed(item.command)
    if made.is_new:
        item.answer(made)
        _note_work(item.result, item.command)
    else:
        item.answer(answers.Found(session.load([made.job_id], lock=False)[made.job_id], False))


def claim(session: Session, items: Sequence[Item], _: Sitting) -> None:
    for item in items:
        held = session.claim(item.command)
        item.answer(held)
        item.result.changed = item.result.changed or bool(held)


def replay(session: Session, items: Sequence[Item], _: Sitting) -> None:
    for item in items:
        try:
            item.answer(_replay_one(session, item, item.command))
        except HoldfastError as refusal:
            item.answer(refusal)


def replay_many(session: Session, items: Sequence[Item], _: Sitting) -> None:
    """Each dead letter by itself: one that is refused does not hurt the others. One that has been replayed is skipped."""
    for item in items:
        command: c.ReplayMany = item.command
        ids, skipped = _letters(session, command)
        locked = session.try_lock([id_ for id_ in ids if id_ not in skipped])
        if not command.again:
            # Another transaction may have replayed some of them before they were locked here.
            skipped |= session.replayed([id_ for id_ in ids if id_ not in skipped and id_ not in locked])
        newest = session.newest_replays(skipped)
        replays = session.load(sorted(newest.values()), lock=False)
        found: list[answers.Found | HoldfastError] = []
        for id_ in ids:
            if id_ in skipped:
                found.append(answers.Found(replays[newest[id_]], False))
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


def _letters(session: Session, command: c.ReplayMany) -> tuple[list[int], set[int]]:
    """The dead letters that a command is about, and those of them that are skipped.

    The skipped ones do not count for the limit: a second call with the same limit goes on where the first one ended.
    """
    fields = {field: getattr(command, field) for field in LetterFilter.__struct_fields__}
    if command.again:
        return session.dead_letters(LetterFilter(**fields)), set()
    ids = session.dead_letters(LetterFilter(**{**fields, "limit": PAGE_MAX}))
    skipped = session.replayed(ids)
    fresh = [id_ for id_ in ids if id_ not in skipped]
    if len(fresh) > command.limit:
        ids = ids[: ids.index(fresh[command.limit])]
    return ids, skipped.intersection(ids)


def _replay_one(session: Session, item: Item, command: c.Replay) -> answers.Found:
    job = session.load([command.job_id], lock=True).get(command.job_id)
    if job is None or (command.expected_rev is not None and command.expected_rev != job.rev):
        decide(job, command, 0)
    assert job is not None
    fresh = replay_of(job, command)
    living = session.live_replay(job.id)
    if living is not None:
        return answers.Found(session.load([living], lock=False)[living], False)
    made = _make_replay(session, item.result, fresh)
    if not made.is_new:
        raise Conflict(f"the dedupe key {fresh.dedupe_key!r} is held by job {made.job_id}", holder=made.job_id, rev=job.rev)
    session.hand_on(job.id, made.job_id)
    item.result.queues.add(job.queue)
    item.result.changed = True
    return answers.Found(session.load([made.job_id], lock=False)[made.job_id], True)


def _make_replay(session: Session, result: Result, fresh: c.Enqueue) -> Made:
    if isinstance(fresh, c.EnqueueLinked):
        made = linked.make(session, [fresh])
        result.note(made.outcomes)
        return Made(made.answers[0].job.id, 0, made.answers[0].is_new)
    return session.enqueue([fresh])[0] if fresh.dedupe_key is None else session.enqueue_keyed(fresh)
