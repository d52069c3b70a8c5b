"""Cancelling all jobs that filters choose, page by page."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.cli.envelope import misuse
from holdfast.cli.frame import Answer
from holdfast.cli.page import Page
from holdfast.cli.progress import Progress
from holdfast.cli.several import Outcomes, refusal, show_refused
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Phase, Status
from holdfast.errors import Conflict, HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger


def named_or_all(ids: tuple[int, ...], everything: bool, chosen: Mapping[str, object]) -> None:
    """Jobs are named, or chosen with --all and filters, and not both."""
    if bool(ids) == everything:
        raise misuse("name the jobs, or choose them with --all and filters")
    if ids and any(chosen.values()):
        raise misuse("--queue, --kind, --status, --limit and --dry-run go with --all, not with ids")


def as_cancelled(job: "Job", *, changed: bool) -> dict[str, Any]:
    is_over = job.finished_at is not None
    return {"job_id": job.id, "status": job.status, "rev": job.rev, "is_over": is_over, "changed": changed}


def cancel_all(
    ledger: "Ledger",
    options: dict[str, Any],
    *,
    status: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    **chosen: Any,
) -> Answer:
    """Cancel the jobs that the filters choose, newest first, so that a job goes before those that it depends on.

    A job that was queued when it was found and is not any more is skipped: somebody has claimed it meanwhile.
    """
    found = _chosen(ledger, limit, {**chosen, "status": status or (Status.QUEUED.value,)})
    if dry_run:
        return _counted(sum(1 for _ in found))
    done: Outcomes = {}
    before: set[int] = set()
    """Jobs that had been asked to stop already."""
    skipped = 0
    with Progress("jobs cancelled") as progress:
        for job in found:
            rev = job.rev if job.status is Status.QUEUED else None
            try:
                done[job.id] = answer = ledger.cancel(job.id, expected_rev=rev, **options)
                if job.phase is Phase.ABORTING and answer.finished_at is None:
                    before.add(job.id)
            except Conflict:
                skipped += 1
            except HoldfastError as error:
                done[job.id] = error
                if error.fault == "store":
                    break
            progress(len(done), limit)
    return _answer(done, before, skipped)


def _chosen(ledger: "Ledger", limit: int | None, chosen: dict[str, Any]) -> "Iterator[Job]":
    after, left = 0, limit
    while left is None or left > 0:
        page = ledger.list(**chosen, order="newest", after=after, limit=PAGE_MAX if left is None else min(PAGE_MAX, left))
        yield from page
        if page.next_after is None:
            return
        after, left = page.next_after, None if left is None else left - len(page)


def _counted(count: int) -> Answer:
    words = f"{count:,} {'job' if count == 1 else 'jobs'} would be cancelled. Nothing was changed."
    said = {"cancelled": [], "count": count, "skipped": 0, "dry_run": True}
    return Answer(said, lambda page: page.line(words))


def _answer(done: Outcomes, before: set[int], skipped: int) -> Answer:
    from holdfast.cli.jobs import shortly

    told = [job for job in done.values() if not isinstance(job, HoldfastError)]
    over = [job.id for job in told if job.finished_at is not None]
    asked = [job.id for job in told if job.finished_at is None]
    listed = [as_cancelled(job, changed=job.id not in before) for job in told]
    said = {"cancelled": listed, "count": len(told), "skipped": skipped, "dry_run": False}

    def show(page: Page) -> None:
        if over:
            page.line(f"{len(over):,} cancelled: {shortly(over)}.")
        if asked:
            page.line(f"{len(asked):,} asked to stop: {shortly(asked)}.")
        if skipped:
            page.line(f"{skipped:,} skipped: claimed or changed meanwhile.")
        if not done and not skipped:
            page.line("There are no such jobs.")
        show_refused(page, done, "cancelled")

    return Answer(said, show, refusal(done, said, "cancelled"))
