"""Change several jobs with one command. If one job is refused, the others are still changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.cli.command import CommandResult, exit_code_of
from holdfast.cli.output import CommandError, Page, ProgressLine, usage_error
from holdfast.cli.values import resolve_since
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Phase, Status
from holdfast.core.text import join_some
from holdfast.errors import Conflict, HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger
    from holdfast.ledger.verbs.on_jobs import ChosenJob, VerbOnJobs


BATCH = 200
"""Jobs in one request."""
NO_JOB = 0
"""Used instead of a job id for an error that concerns a whole batch of jobs."""
Outcomes = dict[int, "Job | HoldfastError"]
"""The changed job or the error, by job id."""


def change_jobs(
    ledger: "Ledger",
    verb: "VerbOnJobs",
    chosen: "Iterable[ChosenJob]",
    *,
    request_id: str | None = None,
    limit: int | None = None,
    counts: "Callable[[Job | HoldfastError], bool]" = lambda _: True,
    **options: Any,
) -> Outcomes:
    """Use a verb on jobs, in batches. Continue after a refusal, and stop if the store is out of reach.

    With `limit`, stop after so many outcomes for which `counts` is true.
    """
    done: Outcomes = {}
    left, jobs, number = limit, iter(chosen), 0
    with ProgressLine("jobs done") as progress:
        while part := list(islice(jobs, BATCH if left is None else min(BATCH, left))):
            progress(len(done), limit)
            try:
                answers = ledger.on_jobs(verb, part, request_id=request_id_of_batch(request_id, number), **options)
            except HoldfastError as error:
                if not done:
                    raise
                return {**done, NO_JOB: error}
            done.update(zip((one if isinstance(one, int) else one[0] for one in part), answers, strict=True))
            if any(isinstance(answer, HoldfastError) and answer.fault == "store" for answer in answers):
                break
            left, number = None if left is None else left - sum(map(counts, answers)), number + 1
    return done


def request_id_of_batch(request_id: str | None, number: int) -> str | None:
    """Return the request id for one of the batches of a command."""
    return request_id if request_id is None or number == 0 else f"{request_id}.{number}"


def refusal_error(done: Outcomes, so_far: dict[str, Any], verb: str) -> CommandError | None:
    """Return the error for the refused jobs, or None. `so_far` is the answer for the others; `verb` is like `cancelled`."""
    refused = _refused(done)
    if not refused:
        return None
    first = next(iter(refused.values()))
    listed = [{"job_id": id_ or None, "error_code": error.code, "error": error.message} for id_, error in refused.items()]
    were = "was" if len(refused) == 1 else "were"
    whole = first.message if len(done) == 1 else f"{len(refused)} of {len(done)} jobs {were} not {verb}"
    if len(done) > 1 and (lost := next((error for error in refused.values() if error.fault == "store"), None)) is not None:
        whole = f"{whole}: {lost.message}"  # the remaining jobs were not tried
    exit_code = exit_code_of(max(refused.values(), key=exit_code_of))
    return CommandError(first.code, whole, action=first.action, exit_code=exit_code, refused=listed, **so_far)


def show_refused(page: Page, done: Outcomes, verb: str) -> None:
    """Print a line for each refused job if there were several jobs: `15: not moved, it has succeeded`."""
    if len(done) > 1:
        for id_, error in _refused(done).items():
            page.line(f"  {id_}: {_refusal_reason(id_, error, verb)}" if id_ else f"  {error.message}")


def _refused(done: Outcomes) -> dict[int, HoldfastError]:
    return {id_: answer for id_, answer in done.items() if isinstance(answer, HoldfastError)}


def _refusal_reason(id_: int, error: HoldfastError, verb: str) -> str:
    if error.message == f"there is no job {id_}":
        return "there is no such job"
    status = error.context.get("status")
    if status in _STATUS_PHRASES and error.message == f"{error.context.get('verb')}: job {id_} is {status}":
        return f"not {verb}, it {_STATUS_PHRASES[status]}"
    return f"not {verb}: {error.message}"


_STATUS_PHRASES: dict[object, str] = {
    Status.SUCCEEDED.value: "has succeeded",
    Status.FAILED.value: "has failed",
    Status.CANCELLED.value: "was cancelled",
    Status.DEAD_LETTERED.value: "was dead-lettered",
    **{status.value: f"is {status.value}" for status in (Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.STALLED)},
}


def require_single_job(ids: tuple[int, ...], **given: object) -> None:
    """Raise if an option that concerns one job is given for several."""
    for name, value in given.items():
        if value is not None and len(ids) > 1:
            raise usage_error(f"--{name.replace('_', '-')} goes with one job, not with {len(ids)}")


def jobs_result(
    done: Outcomes, word: str, fields: "Callable[[Job], dict[str, Any]]", text: "Callable[[Job], str]", *, key: str = "jobs"
) -> CommandResult:
    """Return the answer about changed jobs, with the fields and the text of each. `word` is like `cancelled`."""
    jobs = [job for job in done.values() if not isinstance(job, HoldfastError)]
    data = {key: [fields(job) for job in jobs]}

    def show(page: Page) -> None:
        for job in jobs:
            page.line(text(job))
        show_refused(page, done, word)

    return CommandResult(data, show, refusal_error(done, data, word))


def ids_done(done: Outcomes) -> list[int]:
    return [id_ for id_, answer in done.items() if not isinstance(answer, HoldfastError)]


def discard_result(done: Outcomes) -> CommandResult:
    """Return the answer about discarded jobs."""
    discarded = ids_done(done)

    def show(page: Page) -> None:
        if discarded:
            page.line(f"{len(discarded)} discarded: {join_some(discarded)}.")
        elif not done:
            page.line("There are no such dead letters.")
        show_refused(page, done, "discarded")

    return CommandResult({"discarded": discarded}, show, refusal_error(done, {"discarded": discarded}, "discarded"))


def replay_jobs(ledger: "Ledger", ids: Iterable[int], *, again: bool, **options: Any) -> "tuple[Outcomes, dict[int, Job]]":
    """Replay jobs. Return the outcome of each, and the earlier replay of each job that was skipped."""
    done = change_jobs(ledger, "replay", ids, again=again, **options)
    skipped = {id_: answer for id_, answer in done.items() if not isinstance(answer, HoldfastError) and _is_over(answer)}
    return {id_: answer for id_, answer in done.items() if id_ not in skipped}, skipped


def _is_over(replay: "Job") -> bool:
    """Return whether a replay was made before, and has ended."""
    return not replay.is_new and replay.finished_at is not None


def replay_result(done: Outcomes, skipped: "dict[int, Job]", more: dict[str, Any] | None = None) -> CommandResult:
    """Return the answer about replayed and skipped jobs. `more` has further fields of the answer."""
    made = {id_: job for id_, job in done.items() if not isinstance(job, HoldfastError)}
    data = {
        "replayed": [{"job_id": id_, "replayed_as": job.id, "is_new": job.is_new} for id_, job in made.items()],
        "skipped": len(skipped),
        "skipped_jobs": [{"job_id": id_, "replayed_as": job.id, "status": job.status} for id_, job in skipped.items()],
        **(more or {}),
    }

    def show(page: Page) -> None:
        for id_, job in made.items():
            page.line(f"  job {id_} is replayed as {job.id}" + ("" if job.is_new else ", which was live already"))
        for id_, job in skipped.items():
            page.line(f"  {describe_previous_replay(id_, job)}")
        show_refused(page, done, "replayed")
        page.line(f"{len(made)} replayed.")
        if skipped:
            page.line(f"{len(skipped)} skipped.")

    return CommandResult(data, show, refusal_error(done, data, "replayed"))


def describe_previous_replay(id_: int, replay: "Job") -> str:
    """Return a text like `job 5 was replayed before, as 17 (dead_lettered): replay 17, or give --again`."""
    instead = "give --again to replay it once more"
    if replay.status is Status.DEAD_LETTERED:
        instead = f"replay {replay.id}, or give --again"
    return f"job {id_} was replayed before, as {replay.id} ({replay.status.value}): {instead}"


def require_ids_or_filters(ids: Sequence[int], everything: bool, filters: Mapping[str, object]) -> None:
    """Raise unless the jobs are given either by ids or by --all and filters."""
    if bool(ids) == everything:
        raise usage_error("name the jobs, or choose them with --all and filters")
    if ids and any(filters.values()):
        raise usage_error("filters, --limit, --replayed and --dry-run go with --all, not with ids")


def filtered_dead_letter_ids(ledger: "Ledger", limit: int | None, replayed: bool, filters: dict[str, Any]) -> Iterator[int]:
    """Yield the ids of dead letters that are not discarded, page by page; with `replayed`, only of those that were replayed."""
    filters = {**filters, "since": resolve_since(ledger, filters["since"])}
    after, count = 0, 0
    while True:
        page = ledger.dead_letters(**filters, after=after, limit=PAGE_MAX)
        ids = [job.id for job in page]
        wanted = sorted(ledger.newest_replays(ids)) if replayed else ids
        for id_ in wanted if limit is None else wanted[: limit - count]:
            count += 1
            yield id_
        if count == limit or len(page) < PAGE_MAX:
            return
        after = page[-1].id


def replay_filtered(
    ledger: "Ledger", limit: int | None, filters: dict[str, Any], *, again: bool, **options: Any
) -> tuple[Outcomes, int]:
    """Replay dead letters. Return the outcomes, and the number of those that were replayed before and are skipped."""

    def counts(answer: "Job | HoldfastError") -> bool:
        return isinstance(answer, HoldfastError) or answer.is_new or again

    letters = filtered_dead_letter_ids(ledger, None, replayed=False, filters=filters)
    found = change_jobs(ledger, "replay", letters, limit=limit, counts=counts, again=again, **options)
    done = {id_: answer for id_, answer in found.items() if counts(answer)}
    return done, len(found) - len(done)


def cancelled_fields(job: "Job", *, changed: bool) -> dict[str, Any]:
    is_over = job.finished_at is not None
    return {"job_id": job.id, "status": job.status, "rev": job.rev, "is_over": is_over, "changed": changed}


def cancel_filtered(
    ledger: "Ledger",
    options: dict[str, Any],
    *,
    status: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    **filters: Any,
) -> CommandResult:
    """Cancel the jobs that the filters select, newest first, so that a job is cancelled before its dependencies.

    A job that was queued when it was listed, and has been claimed or changed since, is skipped.
    """
    found = _filtered_jobs(ledger, limit, {**filters, "status": status or (Status.QUEUED.value,)})
    if dry_run:
        return _dry_run_result(sum(1 for _ in found))
    asked: set[int] = set()
    """Jobs whose cancellation had been requested before."""

    def seen(job: "Job") -> tuple[int, int | None]:
        if job.phase is Phase.ABORTING:
            asked.add(job.id)
        return job.id, job.rev if job.status is Status.QUEUED else None

    done = change_jobs(ledger, "cancel", map(seen, found), **options)
    kept = {id_: answer for id_, answer in done.items() if not isinstance(answer, Conflict)}
    return _cancel_result(kept, asked, len(done) - len(kept))


def _filtered_jobs(ledger: "Ledger", limit: int | None, filters: dict[str, Any]) -> "Iterator[Job]":
    after, left = 0, limit
    while left is None or left > 0:
        page = ledger.list(**filters, order="newest", after=after, limit=PAGE_MAX if left is None else min(PAGE_MAX, left))
        yield from page
        if page.next_after is None:
            return
        after, left = page.next_after, None if left is None else left - len(page)


def _dry_run_result(count: int) -> CommandResult:
    words = f"{count:,} {'job' if count == 1 else 'jobs'} would be cancelled. Nothing was changed."
    data = {"cancelled": [], "count": count, "skipped": 0, "dry_run": True}
    return CommandResult(data, lambda page: page.line(words))


def _cancel_result(done: Outcomes, before: set[int], skipped: int) -> CommandResult:
    jobs = [job for job in done.values() if not isinstance(job, HoldfastError)]
    over = [job.id for job in jobs if job.finished_at is not None]
    stopping = [job.id for job in jobs if job.finished_at is None]
    listed = [cancelled_fields(job, changed=job.finished_at is not None or job.id not in before) for job in jobs]
    data = {"cancelled": listed, "count": len(jobs), "skipped": skipped, "dry_run": False}

    def show(page: Page) -> None:
        if over:
            page.line(f"{len(over):,} cancelled: {join_some(over)}.")
        if stopping:
            page.line(f"{len(stopping):,} asked to stop: {join_some(stopping)}.")
        if skipped:
            page.line(f"{skipped:,} skipped: claimed or changed meanwhile.")
        if not done and not skipped:
            page.line("There are no such jobs.")
        show_refused(page, done, "cancelled")

    return CommandResult(data, show, refusal_error(done, data, "cancelled"))
