"""`holdfast explain`: why a job stands where it stands."""

from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.frame import Answer, reads_a_ledger
from holdfast.cli.letters import told
from holdfast.cli.page import Page
from holdfast.cli.pasting import pasteable
from holdfast.cli.values import JOB_ID

if TYPE_CHECKING:
    from holdfast.core.explain import Explanation
    from holdfast.ledger import Ledger

ERROR_CHARACTERS_MAX = 200


@click.command()
@click.argument("job", type=JOB_ID)
@reads_a_ledger
def explain(ledger: "Ledger", *, job: int) -> Answer:
    """Explain the state of a job and what happens next.

    The answer names the commands that would change it.

    \b
    Examples:
      holdfast explain 7
      holdfast explain 7 --json
    """
    found = ledger.explain(job)
    commands = [msgspec.structs.replace(remedy, command=pasteable(remedy.command)) for remedy in found.commands]
    found = msgspec.structs.replace(found, commands=commands)
    return Answer(found, lambda page: _show(page, found))


def _show(page: Page, found: "Explanation") -> None:
    page.line(found.text)
    page.heading("Facts")
    page.fields(_facts(found))
    if found.next:
        page.heading("Next")
        page.table(("what", "when", "by"), [(s.what, _due(s.at, found.now), s.by) for s in found.next])
    if found.commands:
        page.heading("Commands")
        suggested = [(remedy.command, remedy.does) for remedy in found.commands]
        page.fields([("command", "what it does"), *suggested])  # a table would cut them: part of a command is another one


def _facts(found: "Explanation") -> list[tuple[str, object]]:
    status = found.status.value + ("" if found.phase is None else f", {found.phase.value}")
    proof, policy = found.last_proof_of_life, found.policy
    beats = f"{policy.heartbeat_interval_ms / 1_000:g} s, {policy.missed_beats_max} of them"
    pairs: list[tuple[str, object]] = [
        ("situation", found.situation.value),
        ("status", f"{status}, since {_when(found.since, found.now)}"),
        ("attempt", f"{found.attempt} of {found.attempts_max}"),
        ("holder", found.holder if found.holder is None else f"{found.holder} ({found.incarnation})"),
        ("last holder", found.last_holder),
        ("last sign of life", None if proof is None else _when(proof.at, found.now)),
        ("stage", found.stage),
        ("progress", found.progress),
        ("stalls after", f"{policy.stall_after_ms / 1_000:g} s of silence (a beat every {beats})"),
        ("last error", None if found.last_error is None else told(found.last_error, ERROR_CHARACTERS_MAX)),
    ]
    return [(name, value) for name, value in pairs if value is not None]


def _due(at: datetime | None, now: datetime) -> str:
    """`in 12 s (14:03:20Z)`, `was due 1.6 s ago (14:03:20Z)`."""
    if at is None:
        return "–"
    return _when(at, now) if at > now else f"was due {_when(at, now)}"


def _when(at: datetime, now: datetime) -> str:
    from holdfast.core.explain.words import when
    from holdfast.ledger.face import to_micros

    return when(to_micros(at), to_micros(now))
