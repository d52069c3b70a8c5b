"""`holdfast dlq`: list, show, replay and discard dead letters."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.bulk import (
    Outcomes,
    change_jobs,
    discard_result,
    filtered_dead_letter_ids,
    ids_done,
    replay_filtered,
    replay_jobs,
    replay_result,
    require_ids_or_filters,
)
from holdfast.cli.command import CommandResult, NounGroup, with_existing_ledger, with_ledger
from holdfast.cli.completion import QUEUE
from holdfast.cli.job_views import error_text, show_dead_letter
from holdfast.cli.output import Page
from holdfast.cli.values import JOB_ID, failure_stage_option, reason_code_option, resolve_since, when
from holdfast.core.limits import JOB_ID_MAX, PAGE_MAX
from holdfast.core.model import EventType
from holdfast.core.text import format_age
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter dead letters."""
    for option in (
        click.option("--since", type=when, help="Dead-lettered since: 2h, or 2026-03-01T12:00 (UTC unless it says otherwise)."),
        failure_stage_option("Only jobs that failed in this stage."),
        reason_code_option("Only jobs with this reason code."),
        click.option("--kind", help="Only jobs of this kind."),
        click.option("--queue", type=QUEUE, help="Only jobs in this queue."),
    ):
        function = option(function)
    return function


@click.group(cls=NounGroup)
def dlq() -> None:
    """List, replay and discard dead letters.

    \b
    Try:
      holdfast dlq list
    """


@dlq.command("list")
@filter_options
@click.option("--discarded", is_flag=True, help="Include discarded ones.")
@click.option("--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="Show the next page: jobs after this id.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="The most rows to show.")
@with_existing_ledger
def list_(ledger: "Ledger", *, since: timedelta | datetime | None, limit: int, **filters: Any) -> CommandResult:
    """List dead letters, oldest job first.

    \b
    Try:
      holdfast dlq list --queue crawl --since 2h
    """
    now = ledger.now()
    found = ledger.dead_letters(since=resolve_since(ledger, since), limit=limit, **filters)
    from holdfast import shapes

    more = found[-1].id if len(found) == limit else None
    replays = ledger.newest_replays(job.id for job in found)
    failed = not found and bool(ledger.list(status="failed", limit=1))

    def show(page: Page) -> None:
        rows = [_dead_letter_row(job, replays.get(job.id), now) for job in found]
        page.listing(DEAD_LETTER_HEADS, rows, "There are no dead letters.", more=more)
        if failed:
            page.line("  There are failed jobs: holdfast job list --failed", dim=True)

    return CommandResult(
        {"dead_letters": [shapes.dead_letter_fields(job, replays.get(job.id)) for job in found], "next_after": more}, show
    )


DEAD_LETTER_HEADS = ("job", "kind", "queue", "reason", "stage", "attempts", "age", "replayed as", "last error")


def _dead_letter_row(job: "Job", replay: "Job | None", now: datetime) -> tuple[object, ...]:
    again = "–" if replay is None else f"{replay.id}, {replay.status.value}"
    letter = job.dead_letter or {}
    ago = "–" if job.finished_at is None else format_age(now - job.finished_at)
    error = error_text(job.last_error, 60)
    why = letter["reason_code"].value, letter["failure_stage"] or "–"
    return (job.id, job.kind, job.queue, *why, job.attempt, ago, again, error)


@dlq.command()
@click.argument("id", type=JOB_ID)
@with_existing_ledger
def get(ledger: "Ledger", *, id: int) -> CommandResult:  # noqa: A002 - as it is called in the usage
    """Show one dead letter: fields, last error and history.

    The history leaves out heartbeats.

    \b
    Example:
      holdfast dlq get 12
    """
    from holdfast import shapes

    job = ledger.get(id)
    if job.dead_letter is None:
        raise _not_dead_lettered(job)
    events = ledger.events(id, types=[kind.value for kind in EventType if kind is not EventType.HEARTBEAT])
    replays = ledger.list(replay_of=id)
    return CommandResult(
        shapes.dead_letter_details(job, events, replays), lambda page: show_dead_letter(page, job, events, replays)
    )


@dlq.command()
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("--all", "everything", is_flag=True, help="All jobs that the filters select, instead of ids.")
@filter_options
@click.option("--limit", type=click.IntRange(1), help="With --all: at most this many.")
@click.option("--again", is_flag=True, help="Replay dead letters that were replayed before, too.")
@click.option("--discard", "discard_replayed", is_flag=True, help="Discard each one that was replayed.")
@click.option("--reason", help="Why, for the record.")
@with_ledger
def replay(
    ledger: "Ledger",
    *,
    ids: tuple[int, ...],
    everything: bool,
    limit: int | None,
    again: bool,
    discard_replayed: bool,
    reason: str | None,
    **filters: Any,
) -> CommandResult:
    """Replay dead letters, each as a new job.

    Dead letters that were replayed before are skipped. A replay that failed or was cancelled does not count. While a replay is
    live, the answer is that replay. Dead letters stay in the list until they are discarded.

    \b
    Try:
      holdfast dlq replay --all --kind index_page
    """
    require_ids_or_filters(ids, everything, {**filters, "limit": limit})
    before: dict[int, Job] = {}
    skipped = 0
    if everything:
        done, skipped = replay_filtered(ledger, limit, filters, again=again, reason=reason)
    else:
        done, before = replay_jobs(ledger, dict.fromkeys(ids), again=again, reason=reason)
    discarded = ids_done(change_jobs(ledger, "discard", ids_done(done), reason="replayed")) if discard_replayed else []
    more: dict[str, Any] = {"discarded": discarded, **({"skipped": skipped} if everything else {})}
    answer = replay_result(done, before, more)

    def show(page: Page) -> None:
        answer.show(page)
        if skipped:
            page.line(f"{skipped} skipped: replayed before. With --again they are replayed once more.")
        if discarded:
            page.line(f"{len(discarded)} discarded.")

    return CommandResult(answer.data, show, answer.failed)


@dlq.command()
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("--all", "everything", is_flag=True, help="All jobs that the filters select, instead of ids.")
@filter_options
@click.option("--replayed", "only_replayed", is_flag=True, help="With --all: only those that were replayed.")
@click.option("--limit", type=click.IntRange(1), help="With --all: at most this many.")
@click.option("--reason", help="Why, for the record.")
@with_ledger
def discard(
    ledger: "Ledger",
    *,
    ids: tuple[int, ...],
    everything: bool,
    only_replayed: bool,
    limit: int | None,
    reason: str | None,
    **filters: Any,
) -> CommandResult:
    """Mark dead letters as needing no further attention.

    They stay in the record.

    \b
    Try:
      holdfast dlq discard --all --replayed

    \b
    Example:
      holdfast dlq discard 12 13 --reason "a typo of ours"
    """
    require_ids_or_filters(ids, everything, {**filters, "limit": limit, "replayed": only_replayed})
    refused = {} if everything else _not_letters(ledger, ids)
    found = filtered_dead_letter_ids(ledger, limit, only_replayed, filters) if everything else dict.fromkeys(ids)
    return discard_result(refused | change_jobs(ledger, "discard", (id_ for id_ in found if id_ not in refused), reason=reason))


def _not_letters(ledger: "Ledger", ids: Iterable[int]) -> Outcomes:
    """Return the refusals of jobs that are not dead letters. The ledger discards any finished job, but this command does not."""
    refused: Outcomes = {}
    for id_ in ids:
        try:
            job = ledger.get(id_)
        except NotFound as error:
            refused[id_] = error
        else:
            if job.dead_letter is None:
                refused[id_] = _not_dead_lettered(job)
    return refused


def _not_dead_lettered(job: "Job") -> NotFound:
    refused = NotFound(f"job {job.id} is not a dead letter: it is {job.status.value}", job_id=job.id, status=job.status.value)
    refused.action = f"See the job: holdfast job get {job.id}"
    return refused
