"""Verbs of holders as one statement for many; whatever its guards do not match is decided one by one."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.model import TAIL
from holdfast.core.signing import BARE, is_plain
from holdfast.ledger.deciding import decide_each
from holdfast.ledger.door import Call
from holdfast.ledger.items import Item, Runner
from holdfast.ledger.notary import Sitting
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
            item.call.answers[item.place] = change
            item.call.changed = True
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


def settle_call(session: Session, call: Call, sitting: Sitting) -> None:
    """A worker's everyday completions: no job is in it twice and nothing else goes with it."""
    if any(map(_is_odd, call.commands)):
        settle(session, [Item(call, place, command) for place, command in enumerate(call.commands)], sitting)
        return
    done = session.settle(call.commands)  # type: ignore[arg-type]
    refused = [Item(call, place, command) for place, command in enumerate(call.commands) if command.job_id not in done]  # type: ignore[attr-defined]
    call.answers = [SETTLED] * len(call.commands)
    call.changed = call.changed or len(refused) < len(call.commands)
    if refused:
        decide_each(session, refused, sitting)


def settle(session: Session, items: Sequence[Item], sitting: Sitting) -> None:
    plain, rest = _parted(items)
    done = session.settle([item.command for item in plain]) if plain else ()
    for item in plain:
        if item.command.job_id in done:
            item.call.answers[item.place] = SETTLED
            item.call.changed = True
        else:
            rest.append(item)
    if rest:
        decide_each(session, rest, sitting)
