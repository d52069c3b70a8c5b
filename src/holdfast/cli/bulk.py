"""Cancel, replay and discard several jobs with one command. One refusal does not stop the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, GeneratedRequestId
from holdfast.cli.exit_codes import exit_code_of
from holdfast.cli.output import REQUEST_ID, CommandError, Page, ProgressLine, usage_error
from holdfast.cli.values import resolve_since
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Phase, Status
from holdfast.errors import Conflict, HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger


NO_JOB = 0
"""In place of a job, for what went wrong with a whole page of them."""
Outcomes = dict[int, "Job | HoldfastError"]
"""The answer for each job that was asked about."""


def apply_to_each(ids: Iterable[int], verb: "Callable[[int], Job]") -> Outcomes:
    """One refusal does not hurt the others; a store out of reach ends it."""
    done: Outcomes = {}
    asked = dict.fromkeys(ids)
    with ProgressLine("jobs done") as progress:
        for id_ in asked:
            progress(len(done), len(asked))
            try:
                done[id_] = verb(id_)
            except HoldfastError as error:
                done[id_] = error
                if error.fault == "store":
                    break
    return done


def refusal_error(done: Outcomes, so_far: dict[str, Any], verb: str) -> CommandError | None:
    """What to say of jobs that were refused; what was done for the others goes with it. `verb` is `moved`, `cancelled`."""
    refused = _refused(done)
    if not refused:
        return None
    first = next(iter(refused.values()))
    listed = [{"job_id": id_ or None, "error_code": error.code, "error": error.message} for id_, error in refused.items()]
    were = "was" if len(refused) == 1 else "were"
    whole = first.message if len(done) == 1 else f"{len(refused)} of {len(done)} jobs {were} not {verb}"
    if len(done) > 1 and (lost := next((error for error in refused.values() if error.fault == "store"), None)) is not None:
        whole = f"{whole}: {lost.message}"  # the others were not asked about
    exit_code = exit_code_of(max(refused.values(), key=exit_code_of))
    return CommandError(first.code, whole, action=first.action, exit_code=exit_code, refused=listed, **so_far)


def show_refused(page: Page, done: Outcomes, verb: str) -> None:
    """One line for each job that was refused, where there were several: `15: not moved, it has succeeded`."""
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
    """The request id of a command on one job. For several, one that was drawn is dropped: the ledger draws one for each."""
    if len(ids) == 1:
        return request_id
    if not isinstance(request_id, GeneratedRequestId):
        require_single_job(ids, request_id=request_id)
    del click.get_current_context().meta[REQUEST_ID]
    return None


def require_single_job(ids: tuple[int, ...], **given: object) -> None:
    """Options that speak of one job are refused for several."""
    for name, value in given.items():
        if value is not None and len(ids) > 1:
            raise usage_error(f"--{name.replace('_', '-')} goes with one job, not with {len(ids)}")


_COUNTS = (Status.SUCCEEDED, Status.DEAD_LETTERED)
_COUNTS_IF_REPLAYED = (Status.FAILED, Status.CANCELLED)


def find_previous_replay(ledger: "Ledger", id_: int, request_id: str | None = None) -> "Job | None":
    """The newest finished replay of a job that makes another one a duplicate.

    The rule is that of `replay_many`: a replay that failed or was cancelled does not count, unless it was replayed itself. A live
    replay is left to the ledger, which gives it back. A replay by this same request is what its answer was about.
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
    """The outcome for each job, and for each one that was skipped the replay that it has."""
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
    """What to say of jobs that were replayed, and of those that were skipped. `more` goes into the answer too."""
    made = [job for job in done.values() if not isinstance(job, HoldfastError)]
    said = {
        "replayed": [{"job_id": job.replay_of, "replayed_as": job.id, "is_new": job.is_new} for job in made],
        "skipped": len(skipped),
        "skipped_jobs": [{"job_id": id_, "replayed_as": job.id, "status": job.status} for id_, job in skipped.items()],
        **(more or {}),
    }

    def show(page: Page) -> None:
        for job in made:
            page.line(f"  job {job.replay_of} is replayed as {job.id}" + ("" if job.is_new else ", which was on its way already"))
        for id_, job in skipped.items():
            page.line(f"  {describe_previous_replay(id_, job)}")
        show_refused(page, done, "replayed")
        page.line(f"{len(made)} replayed.")
        if skipped:
            page.line(f"{len(skipped)} skipped.")

    return CommandResult(said, show, refusal_error(done, said, "replayed"))


def describe_previous_replay(id_: int, replay: "Job") -> str:
    """`job 5 was replayed before, as 17 (dead_lettered): replay 17, or give --again`."""
    told = f"job {id_} was replayed before, as {replay.id} ({replay.status.value})"
    if replay.status is Status.DEAD_LETTERED:
        return f"{told}: replay {replay.id}, or give --again"
    return (
        f"{told}{', which was replayed too' if replay.status in _COUNTS_IF_REPLAYED else ''}: give --again to replay it once more"
    )


def require_ids_or_filters(ids: Sequence[int], everything: bool, chosen: Mapping[str, object]) -> None:
    """Jobs are named, or chosen by filters, and not both."""
    if bool(ids) == everything:
        raise usage_error("name the jobs, or choose them with --all and filters")
    if ids and any(value is not None for value in chosen.values()):
        raise usage_error("filters, --limit and --replayed go with --all, not with ids")


def filtered_dead_letter_ids(ledger: "Ledger", limit: int | None, replayed: bool, chosen: dict[str, Any]) -> Iterator[int]:
    """Those that nobody has discarded, page by page; with `replayed`, only those that were started over."""
    chosen = {**chosen, "since": resolve_since(ledger, chosen["since"])}
    after, given = 0, 0
    while page := ledger.dead_letters(**chosen, after=after, limit=PAGE_MAX):
        after = page[-1].id
        ids = [job.id for job in page]
        wanted = sorted(ledger.newest_replays(ids)) if replayed else ids
        for id_ in wanted if limit is None else wanted[: limit - given]:
            given += 1
            yield id_
        if given == limit:
            return


def replay_filtered(
    ledger: "Ledger", limit: int | None, chosen: dict[str, Any], *, again: bool = False, reason: str | None = None
) -> tuple[Outcomes, int]:
    """Replay page by page, each page in one transaction. Return the outcomes, and how many dead letters were skipped.

    Those that have been replayed are skipped, unless `again` is true. `reason` says why they are replayed.
    """
    chosen = {**chosen, "since": resolve_since(ledger, chosen["since"]), "again": again, "reason": reason}
    done: Outcomes = {}
    after = skipped = 0
    with ProgressLine("replayed") as progress:
        while limit is None or len(done) < limit:
            size = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(done))
            try:
                found = ledger.replay_many(**chosen, after=after, limit=size)
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


def require_ids_or_all(ids: tuple[int, ...], everything: bool, chosen: Mapping[str, object]) -> None:
    """Jobs are named, or chosen with --all and filters, and not both."""
    if bool(ids) == everything:
        raise usage_error("name the jobs, or choose them with --all and filters")
    if ids and any(chosen.values()):
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
    **chosen: Any,
) -> CommandResult:
    """Cancel the jobs that the filters choose, newest first, so that a job goes before those that it depends on.

    A job that was queued when it was found and is not any more is skipped: somebody has claimed it meanwhile.
    """
    found = _filtered_jobs(ledger, limit, {**chosen, "status": status or (Status.QUEUED.value,)})
    if dry_run:
        return _dry_run_result(sum(1 for _ in found))
    done: Outcomes = {}
    before: set[int] = set()
    """Jobs that had been asked to stop already."""
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


def _filtered_jobs(ledger: "Ledger", limit: int | None, chosen: dict[str, Any]) -> "Iterator[Job]":
    after, left = 0, limit
    while left is None or left > 0:
        page = ledger.list(**chosen, order="newest", after=after, limit=PAGE_MAX if left is None else min(PAGE_MAX, left))
        yield from page
        if page.next_after is None:
            return
        after, left = page.next_after, None if left is None else left - len(page)


def _dry_run_result(count: int) -> CommandResult:
    words = f"{count:,} {'job' if count == 1 else 'jobs'} would be cancelled. Nothing was changed."
    said = {"cancelled": [], "count": count, "skipped": 0, "dry_run": True}
    return CommandResult(said, lambda page: page.line(words))


def _cancel_result(done: Outcomes, before: set[int], skipped: int) -> CommandResult:
    from holdfast.cli.job_views import shorten_ids

    told = [job for job in done.values() if not isinstance(job, HoldfastError)]
    over = [job.id for job in told if job.finished_at is not None]
    asked = [job.id for job in told if job.finished_at is None]
    listed = [cancelled_fields(job, changed=job.id not in before) for job in told]
    said = {"cancelled": listed, "count": len(told), "skipped": skipped, "dry_run": False}

    def show(page: Page) -> None:
        if over:
            page.line(f"{len(over):,} cancelled: {shorten_ids(over)}.")
        if asked:
            page.line(f"{len(asked):,} asked to stop: {shorten_ids(asked)}.")
        if skipped:
            page.line(f"{skipped:,} skipped: claimed or changed meanwhile.")
        if not done and not skipped:
            page.line("There are no such jobs.")
        show_refused(page, done, "cancelled")

    return CommandResult(said, show, refusal_error(done, said, "cancelled"))
