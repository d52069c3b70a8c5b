"""`holdfast job`: enqueue, show, list, wait for, cancel, move, requeue, replay and discard jobs."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.bulk import (
    cancel_filtered,
    cancelled_fields,
    change_jobs,
    discard_result,
    ids_done,
    jobs_result,
    replay_jobs,
    replay_result,
    request_id_of_batch,
    require_ids_or_filters,
    require_single_job,
)
from holdfast.cli.command import CommandResult, GeneratedRequestId, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import QUEUE
from holdfast.cli.job_enqueue import enqueue
from holdfast.cli.job_outcomes import dead_letter, requeue
from holdfast.cli.job_wait import result, wait
from holdfast.cli.output import REQUEST_ID, Page, usage_error
from holdfast.cli.values import (
    JOB_ID,
    EventTypes,
    dialect_option,
    format_time,
    resolve_since,
    schedule_options,
    type_option,
    when,
)
from holdfast.core.limits import JOB_ID_MAX, PAGE_MAX, PRIORITY_MAX, REV_MAX
from holdfast.core.model import LIVE, TERMINAL, Phase, Status
from holdfast.core.vocabulary import Dialect

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger
    from holdfast.ledger.verbs.on_jobs import VerbOnJobs


reason_option = click.option("--reason", help="Why, for the record.")


@click.group(cls=NounGroup)
def job() -> None:
    """Enqueue, list, cancel and replay jobs.

    \b
    Try:
      holdfast job enqueue index_page --queue crawl --args '{"url": "https://a.example"}'
      holdfast job list --queue crawl --status queued
    """


@job.command()
@click.argument("id", type=JOB_ID)
@with_existing_ledger
def get(ledger: "Ledger", *, id: int) -> CommandResult:  # noqa: A002 - as it is called in the usage
    """Show one job.

    \b
    Example:
      holdfast job get 12 --json
    """
    from holdfast.cli.job_views import ATTEMPT_END_TYPES, IDS_MAX, show_attempts, show_job
    from holdfast.shapes import job_view

    found = ledger.get(id)
    dependencies = [ledger.get(other) for other in found.waits_for[:IDS_MAX]]
    ended = {job.id: job.status for job in dependencies if job.status in TERMINAL}
    ends = ledger.events(id, types=[kind.value for kind in ATTEMPT_END_TYPES], limit=PAGE_MAX) if found.attempt else []

    def show(page: Page) -> None:
        show_job(page, found, ended)
        show_attempts(page, ends)

    return CommandResult({"job": job_view(found), "waits_in_vain_for": list(ended)}, show)


@job.command("list")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Only jobs with this status; may be repeated.",
)
@click.option("--failed", is_flag=True, help="Only jobs that failed or were dead-lettered.")
@click.option(
    "--phase",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase]),
    help="Only running and stalled jobs in this phase.",
)
@click.option("--waiting", is_flag=True, help="Only jobs that wait for other jobs.")
@click.option("--scheduled", is_flag=True, help="Only queued jobs that are not available yet. Reads 10,000 queued jobs.")
@click.option("--owner", metavar="NAME", help="Only jobs that this worker or agent holds now.")
@click.option("--queue", type=QUEUE, help="Only jobs in this queue.")
@click.option("--kind", help="Only jobs of this kind.")
@click.option(
    "--text",
    help="Only jobs with this text in kind, queue, correlation id, dedupe key, last error or arguments. Reads 50,000 jobs.",
)
@click.option("--since", type=when, metavar="WHEN", help="Only jobs enqueued since: 2h (ago), or a time.")
@click.option("--until", type=when, metavar="WHEN", help="Only jobs enqueued before: 2h (ago), or a time.")
@click.option("--correlation-id", help="Only jobs with this correlation id.")
@click.option("--dedupe-key", help="Only jobs that have this dedupe key, in any queue.")
@click.option("--replay-of", type=JOB_ID, metavar="ID", help="Only replays of this job.")
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest"]),
    default="newest",
    show_default=True,
    help="Whether the newest or the oldest jobs come first.",
)
@click.option(
    "--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="Show the next page. Each page names the value at its end."
)
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="The most rows to show.")
@click.option("--counts", is_flag=True, help="Count jobs in a large ledger too. Below 100,000 jobs they are always counted.")
@with_existing_ledger
def list_(
    ledger: "Ledger",
    *,
    status: tuple[str, ...],
    failed: bool,
    phase: tuple[str, ...],
    scheduled: bool,
    limit: int,
    counts: bool,
    **filters: Any,
) -> CommandResult:
    """List jobs, newest first.

    \b
    Try:
      holdfast job list --status running --status stalled
      holdfast job list --failed --since 2h
      holdfast job list --text "connection refused"
    """
    from holdfast.cli.job_views import JOB_HEADS, job_row
    from holdfast.shapes import job_view

    now = ledger.now()
    statuses = {*status, *((Status.FAILED.value, Status.DEAD_LETTERED.value) if failed else ())}
    filters |= {name: resolve_since(ledger, filters[name]) for name in ("since", "until")}
    if scheduled:
        if statuses or phase or filters["waiting"]:
            raise usage_error("--scheduled is about queued jobs: --status, --failed, --phase and --waiting do not go with it")
        found, more = _scheduled_jobs(ledger, now, limit, filters)
    else:
        listed = ledger.list(status=sorted(statuses) or None, phase=phase or None, limit=limit, **filters)
        found, more = list(listed), listed.next_after
    newest = ledger.list(order="newest", limit=1)
    counted = _count_by_status(ledger, filters["queue"]) if counts or not newest or newest[0].id <= COUNTED_MAX else None

    def show(page: Page) -> None:
        empty = "There are no such jobs." if more is None else f"There are no such jobs up to job {more}."
        page.listing(JOB_HEADS, [job_row(job, now) for job in found], empty, more=more)
        if counted:
            total, where = sum(counted.values()), f" in {filters['queue']}" if filters["queue"] else ""
            parts = ", ".join(f"{count:,} {name}" for name, count in counted.items())
            page.line(f"  {total:,} {'job' if total == 1 else 'jobs'}{where} in all: {parts}", dim=True)

    return CommandResult({"jobs": [job_view(job) for job in found], "next_after": more, "counts": counted}, show)


def _scheduled_jobs(ledger: "Ledger", now: datetime, limit: int, filters: dict[str, Any]) -> "tuple[list[Job], int | None]":
    """Return queued jobs that are not available yet, and the `after` of the next page.

    The ledger cannot filter by this, so the function reads pages of queued jobs and drops those that are available.
    """
    from holdfast.cli.job_views import is_scheduled

    found: list[Job] = []
    after: int | None = filters["after"]
    for _ in range(SCHEDULED_PAGES_MAX):
        page = ledger.list(**{**filters, "status": Status.QUEUED.value, "after": after, "limit": PAGE_MAX})
        found += [job for job in page if is_scheduled(job, now)]
        if len(found) >= limit:
            return found[:limit], found[limit - 1].id
        after = page.next_after
        if after is None:
            break
    return found, after


SCHEDULED_PAGES_MAX = 10
COUNTED_MAX = 100_000
"""Counting reads every job. If the newest id is above this, jobs are counted only with `--counts`."""


def _count_by_status(ledger: "Ledger", queue: str | None) -> dict[str, int]:
    """Return the number of jobs of each status, in all queues or in one. Other filters do not apply."""
    found = [statuses for name, statuses in ledger.counts().items() if queue in (None, name)]
    totals = {status.value: sum(statuses.get(status.value, 0) for statuses in found) for status in Status}
    return {name: count for name, count in totals.items() if count}


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("--all", "everything", is_flag=True, help="All jobs that the filters select, instead of ids.")
@click.option("--queue", type=QUEUE, help="With --all: only jobs in this queue.")
@click.option("--kind", help="With --all: only jobs of this kind.")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in Status if status in LIVE]),
    help="With --all: only jobs with this status; may be repeated. [default: queued]",
)
@click.option("--limit", type=click.IntRange(1), help="With --all: at most this many, the newest first.")
@click.option("--dry-run", is_flag=True, help="With --all: count the jobs, and change nothing.")
@click.option("--hard", is_flag=True, help="Do not wait for the holder: refuse its writes from now on.")
@reason_option
@click.option("--expected-rev", type=click.IntRange(1, REV_MAX), help="Only if this is the job's revision.")
@request_option
@with_ledger
def cancel(
    ledger: "Ledger",
    *,
    ids: tuple[int, ...],
    everything: bool,
    hard: bool,
    reason: str | None,
    expected_rev: int | None,
    request_id: str,
    **filters: Any,
) -> CommandResult:
    """Cancel jobs, by id or with --all and filters.

    A running job is asked to stop, unless --hard is given. With --all, queued jobs are cancelled, unless --status is given.

    \b
    Try:
      holdfast job cancel --all --queue crawl --dry-run

    \b
    Example:
      holdfast job cancel 12 13 --reason "not needed any more"
    """
    require_ids_or_filters(ids, everything, filters)
    options: dict[str, Any] = {} if reason is None else {"reason": reason}
    if everything:
        if expected_rev is not None or not isinstance(request_id, GeneratedRequestId):
            raise usage_error("--expected-rev and --request-id go with ids, not with --all")
        del click.get_current_context().meta[REQUEST_ID]
        return cancel_filtered(ledger, {**options, "hard": hard}, **filters)
    require_single_job(ids, expected_rev=expected_rev)
    chosen = [(id_, expected_rev) for id_ in dict.fromkeys(ids)]
    done = change_jobs(ledger, "cancel", chosen, request_id=request_id, hard=hard, **options)
    requests = {request_id_of_batch(request_id, number) for number in range(len(done))}
    changed = {id_ for id_ in ids_done(done) if _is_cancelled_by(ledger, id_, requests)}
    return jobs_result(
        done,
        "cancelled",
        lambda job: cancelled_fields(job, changed=job.id in changed),
        lambda job: _cancel_message(job, changed=job.id in changed),
        key="cancelled",
    )


def _is_cancelled_by(ledger: "Ledger", job_id: int, requests: set[str | None]) -> bool:
    """Return whether one of these requests has changed the job."""
    return any(event.request_id in requests for event in ledger.events(job_id, types=["cancel_requested", "cancelled"]))


def _cancel_message(job: "Job", *, changed: bool) -> str:
    if job.finished_at is not None:
        return f"Job {job.id} is cancelled." if changed else f"Job {job.id} was cancelled already: nothing has changed."
    if changed:
        return f"Job {job.id} is asked to stop."
    return f"Job {job.id} was asked to stop already: nothing has changed. --hard does not wait for it."


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@click.option("--queue", type=QUEUE, help="The queue to move them to.")
@click.option("--for-worker", metavar="NAME", help="The only worker that may have them from now on.")
@click.option("--any-worker", is_flag=True, help="Let any worker have them.")
@reason_option
@request_option
@with_ledger
def move(
    ledger: "Ledger", *, ids: tuple[int, ...], queue: str | None, for_worker: str | None, any_worker: bool, **given: Any
) -> CommandResult:
    """Move queued jobs to another queue, or to another worker.

    \b
    Examples:
      holdfast job move 12 13 --queue fetch
      holdfast job move 12 --any-worker
    """
    if any_worker and for_worker is not None:
        raise click.UsageError("Give --for-worker or --any-worker, not both.")
    if queue is None and for_worker is None and not any_worker:
        raise click.UsageError("Give --queue, --for-worker or --any-worker.")
    worker: dict[str, Any] = {"for_worker": for_worker} if any_worker or for_worker is not None else {}
    return _placement_result(ledger, "move", ids, "moved", **worker, queue=queue, **given)


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@click.option(
    "--priority", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX), required=True, help="Jobs with a higher priority go first."
)
@reason_option
@request_option
@with_ledger
def reprioritise(ledger: "Ledger", *, ids: tuple[int, ...], priority: int, **given: Any) -> CommandResult:
    """Give queued jobs another priority.

    \b
    Example:
      holdfast job reprioritise 12 --priority 10
    """
    return _placement_result(ledger, "reprioritise", ids, "reprioritised", priority=priority, **given)


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@schedule_options
@reason_option
@request_option
@with_ledger
def reschedule(
    ledger: "Ledger", *, ids: tuple[int, ...], delay: timedelta | None, available_at: datetime | None, **given: Any
) -> CommandResult:
    """Make queued jobs available now, or at another time.

    \b
    Example:
      holdfast job reschedule 12 --delay 2h
      holdfast job reschedule 12 13
    """
    times: dict[str, Any] = {"delay": delay, "available_at": available_at}
    return _placement_result(ledger, "reschedule", ids, "rescheduled", **times, **given)


def _placement_result(ledger: "Ledger", verb: "VerbOnJobs", ids: tuple[int, ...], word: str, **options: Any) -> CommandResult:
    """Change the queue, priority or time of queued jobs. `word` is like `moved`."""
    return jobs_result(change_jobs(ledger, verb, dict.fromkeys(ids), **options), word, _placement, _placement_text)


def _placement(job: "Job") -> dict[str, Any]:
    return {"job_id": job.id, "queue": job.queue, "priority": job.priority, "available_at": job.available_at, "rev": job.rev}


def _placement_text(job: "Job") -> str:
    when_ = "once others have succeeded" if job.waits_for else f"from {format_time(job.available_at)}"
    place = job.queue if job.for_worker is None else f"{job.queue} for the worker {job.for_worker}"
    return f"Job {job.id} is queued in {place}, priority {job.priority}, available {when_}."


@job.command()
@click.argument("id", type=JOB_ID)
@reason_option
@request_option
@with_ledger
def assist(ledger: "Ledger", *, id: int, **options: Any) -> CommandResult:  # noqa: A002
    """Record that an operator helps a running job.

    \b
    Example:
      holdfast job assist 12
    """
    return _assist_result(ledger.assist(id, **options), "An operator helps job {}.")


@job.command()
@click.argument("id", type=JOB_ID)
@reason_option
@request_option
@with_ledger
def unassist(ledger: "Ledger", *, id: int, **options: Any) -> CommandResult:  # noqa: A002
    """Record that the operator's help is over.

    \b
    Example:
      holdfast job unassist 12
    """
    return _assist_result(ledger.unassist(id, **options), "Job {} continues without help.")


def _assist_result(job: "Job", words: str) -> CommandResult:
    data = {"job_id": job.id, "status": job.status, "phase": job.phase, "rev": job.rev}
    return CommandResult(data, lambda page: page.line(words.format(job.id)))


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@click.option("--again", is_flag=True, help="Replay jobs that were replayed before, too.")
@reason_option
@request_option
@with_ledger
def replay(ledger: "Ledger", *, ids: tuple[int, ...], again: bool, reason: str | None, request_id: str) -> CommandResult:
    """Replay finished jobs, each as a new job.

    A job that was replayed before is skipped. A replay that failed or was cancelled does not count. While a replay is live, the
    answer is that replay.

    \b
    Example:
      holdfast job replay 12 --reason "the page is back"
    """
    return replay_result(*replay_jobs(ledger, dict.fromkeys(ids), again=again, reason=reason, request_id=request_id))


@job.command()
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@reason_option
@with_ledger
def discard(ledger: "Ledger", *, ids: tuple[int, ...], reason: str | None) -> CommandResult:
    """Mark finished jobs as needing no further attention.

    The jobs stay in the record. `holdfast doctor` does not count them any more.

    \b
    Example:
      holdfast job discard 12 13 --reason "a typo of ours"
    """
    return discard_result(change_jobs(ledger, "discard", dict.fromkeys(ids), reason=reason))


@job.command()
@click.argument("id", type=JOB_ID)
@type_option
@click.option("--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="Show the next page: events after this position.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=PAGE_MAX, show_default=True, help="The most rows to show.")
@dialect_option
@with_existing_ledger
def events(
    ledger: "Ledger",
    *,
    id: int,  # noqa: A002 - as it is called in the usage
    types: tuple[tuple[str, ...], ...],
    after: int,
    limit: int,
    dialect: str,
) -> CommandResult:
    """Show the events of a job, oldest first.

    The last column names the key of each signed event.

    \b
    Example:
      holdfast job events 12 --type stalled --type requeued
      holdfast job events 12 --dialect jobs --json
    """
    from holdfast.cli.job_views import EVENT_HEADS, event_rows

    ledger.get(id)
    wanted = EventTypes.of(types)
    read = ledger.events(id, types=wanted.stored, after=after, limit=limit)
    more = read[-1].pos if len(read) == limit else None
    found = [event for event in read if wanted.has(event)]
    rows = event_rows(ledger, found, dialect)
    events: dict[str, Any] = {"events": found}
    if dialect != Dialect.HOLDFAST:
        events = {"dialect": dialect, "events": ledger.in_dialect(found, dialect)}
    data = {**events, "next_after": more}
    return CommandResult(data, lambda page: page.listing(EVENT_HEADS, rows, "There are no such events.", more=more))


job.add_command(enqueue)
job.add_command(requeue)
job.add_command(dead_letter)
job.add_command(wait)
job.add_command(result)
