"""`holdfast explain` and `holdfast gate`: the state of one job, and whether its holder may proceed."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.command import CommandResult, with_db_option, with_existing_ledger
from holdfast.cli.job_views import error_text
from holdfast.cli.output import Page
from holdfast.cli.values import JOB_ID
from holdfast.core.text import format_age

if TYPE_CHECKING:
    from holdfast.core.explain import Explanation
    from holdfast.ledger import Ledger


ERROR_CHARACTERS_MAX = 200


@click.command()
@click.argument("job", type=JOB_ID)
@with_existing_ledger
def explain(ledger: "Ledger", *, job: int) -> CommandResult:
    """Explain the state of a job and what happens next.

    The answer names the commands that would change it.

    \b
    Examples:
      holdfast explain 7
      holdfast explain 7 --json
    """
    found = ledger.explain(job)
    commands = [msgspec.structs.replace(remedy, command=with_db_option(remedy.command)) for remedy in found.commands]
    found = msgspec.structs.replace(found, commands=commands)
    return CommandResult(found, lambda page: _show(page, found))


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
        page.fields([("command", "what it does"), *suggested])  # not a table: it would shorten long commands


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
        ("last error", None if found.last_error is None else error_text(found.last_error, ERROR_CHARACTERS_MAX)),
    ]
    return [(name, value) for name, value in pairs if value is not None]


def _due(at: datetime | None, now: datetime) -> str:
    """Return a text like `in 12 s (14:03:20Z)` or `was due 1.6 s ago (14:03:20Z)`."""
    if at is None:
        return "–"
    return _when(at, now) if at > now else f"was due {_when(at, now)}"


def _when(at: datetime, now: datetime) -> str:
    from holdfast.core.explain.formatting import format_when
    from holdfast.ledger.public import to_micros

    return format_when(to_micros(at), to_micros(now))


@click.command()
@click.argument("job", type=JOB_ID)
@with_existing_ledger
def gate(ledger: "Ledger", *, job: int) -> CommandResult:
    """Check whether the holder of a job may proceed.

    Exit 0 if it may, 1 if it may not.

    It may proceed while its newest heartbeat is fresh, it is not stalled, and its attempts are within their limit. If anything
    is unclear, it may not. `--json` has the receipt, or the reason of the denial.

    \b
    Example:
      holdfast gate 12 && ./move-the-arm
    """
    receipt = ledger.gate(job)
    holder, now_ms = ledger.get(job).owner, int(ledger.now().timestamp() * 1_000)

    def show(page: Page) -> None:
        silent = format_age(timedelta(milliseconds=now_ms - receipt.emitted_at_tick))
        page.line(f"Job {job} may proceed: {holder or 'its holder'} is {receipt.health_verdict.value}.")
        page.fields(
            [
                ("last beat", f"{silent} ago"),
                ("up for", format_age(timedelta(milliseconds=receipt.uptime_ms))),
                ("restarts", f"{receipt.restart_count} of {receipt.max_restarts}"),
                ("run", receipt.run_id),
            ]
        )

    return CommandResult({"job_id": job, "receipt": receipt.to_object()}, show)
