"""Verbs of holders as one statement for many; whatever its guards do not match is decided one by one."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.model import TAIL
from holdfast.core.signing import BARE, is_plain
from holdfast.ledger.deciding import decide_each
from holdfast.ledger.notary import Sitting
from holdfast.ledger.requests import Item, Result, Runner
from holdfast.store.base import Change, Session

SETTLED = "settled"
"""What a completion in bulk answers: it is done."""


def as_one(run: Callable[[Session], Callable[[Sequence[Any]], list[Change | None]]]) -> Runner:
    def runner(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
        plain, rest = _parted(items)
        if plain:
            rest += _ran(plain, run(session)([item.command for item in plain]))
        if rest:
            decide_each(session, rest, sitting)

    return runner


def complete(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    """The statement knows nothing of objections: a command that has one is decided by itself."""
    accepted = [item for item in items if item.command.objection is None]
    if accepted:
        _complete_plain(session, accepted, sitting)
    if len(accepted) < len(items):
        decide_each(session, [item for item in items if item.command.objection is not None], sitting)


_complete_plain = as_one(lambda session: session.complete)


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
            item.result.answers[item.place] = change
            item.result.changed = True
    return refused


def beat(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
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
        decide_each(session, rest, sitting)


def settle_all(session: Session, result: Result, sitting: Sitting) -> None:
    """Complete all jobs of a worker's request, which has no job in it twice."""
    commands: Sequence[Any] = result.request.commands
    if any(map(_is_odd, commands)):
        settle(session, [Item(result, place, command) for place, command in enumerate(commands)], sitting)
        return
    done = session.settle(commands)
    refused = [Item(result, place, command) for place, command in enumerate(commands) if command.job_id not in done]
    result.answers = [SETTLED] * len(commands)
    result.changed = result.changed or len(refused) < len(commands)
    if refused:
        decide_each(session, refused, sitting)


def settle(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    plain, rest = _parted(items)
    done = session.settle([item.command for item in plain]) if plain else ()
    for item in plain:
        if item.command.job_id in done:
            item.result.answers[item.place] = SETTLED
            item.result.changed = True
        else:
            rest.append(item)
    if rest:
        decide_each(session, rest, sitting)
