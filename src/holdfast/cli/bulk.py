"""Cancel, replay and discard several jobs with one command. If one job is refused, the others are still processed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, GeneratedRequestId, exit_code_of
from holdfast.cli.output import REQUEST_ID, CommandError, Page, ProgressLine, usage_error
from holdfast.cli.values import resolve_since
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Phase, Status
from holdfast.core.text import join_some
from holdfast.errors import Conflict, HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger


NO_JOB = 0
"""Used instead of a job id for an error that concerns a whole page of jobs."""
Outcomes = dict[int, "Job | HoldfastError"]
"""The changed job or the error, by job id."""


def apply_to_each(ids: Iterable[int], verb: "Callable[[int], Job]") -> Outcomes:
    """Call `verb` for each job and collect the outcomes. Continue after a refusal, and stop if the store is out of reach."""
    done: Outcomes = {}
    unique = dict.fromkeys(ids)
    with ProgressLine("jobs done") as progress:
        for id_ in unique:
            progress(len(done), len(unique))
            try:
                done[id_] = verb(id_)
            except HoldfastError as error:
                done[id_] = error
                if error.fault == "store":
                    break
    return done


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


def request_id_for(ids: tuple[int, ...], request_id: str) -> str | None:
    """Return the request id for a command on one job.

    For several jobs, drop a generated id, because the ledger generates one for each job, and refuse one that was typed.
    """
    if len(ids) == 1:
        return request_id
    if not isinstance(request_id, GeneratedRequestId):
        require_single_job(ids, request_id=request_id)
    del click.get_current_context().meta[REQUEST_ID]
    return None


def require_single_job(ids: tuple[int, ...], **given: object) -> None:
    """Raise if an option that concerns one job is given for several."""
    for name, value in given.items():
        if value is not None and len(ids) > 1:
            raise usage_error(f"--{name.replace('_', '-')} goes with one job, not with {len(ids)}")


_COUNTS = (Status.SUCCEEDED, Status.DEAD_LETTERED)
_COUNTS_IF_REPLAYED = (Status.FAILED, Status.CANCELLED)


def find_previous_replay(ledger: "Ledger", id_: int, request_id: str | None = None) -> "Job | None":
    """Return the newest finished replay of a job that makes another replay a duplicate, or None.

    The rule is that of `replay_many`: a replay that failed or was cancelled does not count, unless it was replayed itself. If a
    replay is live, return None: the ledger then answers with that replay. Likewise if this same request made a replay: the
    ledger repeats its answer.
    """
    replays = ledger.list(replay_of=id_, order="newest", limit=PAGE_MAX)
    if not replays or (request_id is not None and _is_made_by_request(ledger, replays, request_id)):
        return None
    replayed = ledger.newest_replays(job.id for job in replays if job.status in _COUNTS_IF_REPLAYED)
    if any(job.finished_at is None for job in replays):
        return None
    return next((job for job in replays if job.status in _COUNTS or job.id in replayed), None)


def _is_made_by_request(ledger: "Ledger", replays: "list[Job]", request_id: str) -> bool:
    return any(ledger.events(job.id, types=["enqueued"], limit=1)[0].request_id == request_id for job in replays)


def replay_ids(
    ledger: "Ledger", ids: tuple[int, ...], *, again: bool, reason: str | None, request_id: str | None = None
) -> "tuple[Outcomes, dict[int, Job]]":
    """Replay jobs. Return the outcome of each, and the earlier replay of each job that was skipped."""
    skipped: dict[int, Job] = {}

    def verb(id_: int) -> "Job":
        before = None if again else find_previous_replay(ledger, id_, request_id)
        if before is None:
            return ledger.replay(id_, reason=reason, request_id=request_id)
        skipped[id_] = before
        return before

    done = apply_to_each(ids, verb)
    return {id_: answer for id_, answer in done.items() if id_ not in skipped}, skipped


def replay_result(done: Outcomes, skipped: "dict[int, Job]", more: dict[str, Any] | None = None) -> CommandResult:
    """Return the answer about replayed and skipped jobs. `more` has further fields of the answer."""
    made = [job for job in done.values() if not isinstance(job, HoldfastError)]
    data = {
        "replayed": [{"job_id": job.replay_of, "replayed_as": job.id, "is_new": job.is_new} for job in made],
        "skipped": len(skipped),
        "skipped_jobs": [{"job_id": id_, "replayed_as": job.id, "status": job.status} for id_, job in skipped.items()],
        **(more or {}),
    }

    def show(page: Page) -> None:
        for job in made:
            page.line(f"  job {job.replay_of} is replayed as {job.id}" + ("" if job.is_new else ", which was live already"))
        for id_, job in skipped.items():
            page.line(f"  {describe_previous_replay(id_, job)}")
        show_refused(page, done, "replayed")
        page.line(f"{len(made)} replayed.")
        if skipped:
            page.line(f"{len(skipped)} skipped.")

    return CommandResult(data, show, refusal_error(done, data, "replayed"))


def describe_previous_replay(id_: int, replay: "Job") -> str:
    """Return a text like `job 5 was replayed before, as 17 (dead_lettered): replay 17, or give --again`."""
    text = f"job {id_} was replayed before, as {replay.id} ({replay.status.value})"
    if replay.status is Status.DEAD_LETTERED:
        return f"{text}: replay {replay.id}, or give --again"
    return (
        f"{text}{', which was replayed too' if replay.status in _COUNTS_IF_REPLAYED else ''}: give --again to replay it once more"
    )


def require_ids_or_filters(ids: Sequence[int], everything: bool, filters: Mapping[str, object]) -> None:
    """Raise unless the jobs are given either by ids or by filters."""
    if bool(ids) == everything:
        raise usage_error("name the jobs, or choose them with --all and filters")
    if ids and any(value is not None for value in filters.values()):
        raise usage_error("filters, --limit and --replayed go with --all, not with ids")


def filtered_dead_letter_ids(ledger: "Ledger", limit: int | None, replayed: bool, filters: dict[str, Any]) -> Iterator[int]:
    """Yield the ids of dead letters that are not discarded, page by page; with `replayed`, only of those that were replayed."""
    filters = {**filters, "since": resolve_since(ledger, filters["since"])}
    after, count = 0, 0
    while page := ledger.dead_letters(**filters, after=after, limit=PAGE_MAX):
        after = page[-1].id
        ids = [job.id for job in page]
        wanted = sorted(ledger.newest_replays(ids)) if replayed else ids
        for id_ in wanted if limit is None else wanted[: limit - count]:
            count += 1
            yield id_
        if count == limit:
            return


def replay_filtered(
    ledger: "Ledger", limit: int | None, filters: dict[str, Any], *, again: bool = False, reason: str | None = None
) -> tuple[Outcomes, int]:
    """Replay dead letters page by page, each page in one transaction. Return the outcomes and the number of skipped ones.

    Dead letters that have been replayed are skipped, unless `again` is true. `reason` is recorded with each replay.
    """
    filters = {**filters, "since": resolve_since(ledger, filters["since"]), "again": again, "reason": reason}
    done: Outcomes = {}
    after = skipped = 0
    with ProgressLine("replayed") as progress:
        while limit is None or len(done) < limit:
            size = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(done))
            try:
                found = ledger.replay_many(**filters, after=after, limit=size)
            except HoldfastError as error:
                if not done:
                    raise
                return {**done, NO_JOB: error}, skipped
            for answer in found:
                after = answer.context["job_id"] if isinstance(answer, HoldfastError) else answer.replay_of or 0
                if isinstance(answer, HoldfastError) or answer.is_new or again:
                    done[after] = answer
                else:
                    skipped += 1
            progress(len(done), limit)
            if len(found) < size:
                break
    return done, skipped


def require_ids_or_all(ids: tuple[int, ...], everything: bool, filters: Mapping[str, object]) -> None:
    """Raise unless the jobs are given either by ids or by --all and filters."""
    if bool(ids) == everything:
        raise usage_error("name the jobs, or choose them with --all and filters")
    if ids and any(filters.values()):
        raise usage_error("--queue, --kind, --status, --limit and --dry-run go with --all, not with ids")


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
    done: Outcomes = {}
    before: set[int] = set()
    """Jobs whose cancellation had been requested before."""
    skipped = 0
    with ProgressLine("jobs cancelled") as progress:
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
    return _cancel_result(done, before, skipped)


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
    listed = [cancelled_fields(job, changed=job.id not in before) for job in jobs]
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
