"""One verb for several jobs: a refusal of one does not hurt the others."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.ending import exit_code_of
from holdfast.cli.envelope import REQUEST_ID, Failed, misuse
from holdfast.cli.frame import Drawn
from holdfast.cli.page import Page
from holdfast.cli.progress import Progress
from holdfast.core.model import Status
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job

NO_JOB = 0
"""In place of a job, for what went wrong with a whole page of them."""
Outcomes = dict[int, "Job | HoldfastError"]
"""The answer for each job that was asked about."""


def each(ids: Iterable[int], verb: "Callable[[int], Job]") -> Outcomes:
    """One refusal does not hurt the others; a store out of reach ends it."""
    done: Outcomes = {}
    asked = dict.fromkeys(ids)
    with Progress("jobs done") as progress:
        for id_ in asked:
            progress(len(done), len(asked))
            try:
                done[id_] = verb(id_)
            except HoldfastError as error:
                done[id_] = error
                if error.fault == "store":
                    break
    return done


def refusal(done: Outcomes, so_far: dict[str, Any], verb: str) -> Failed | None:
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
    return Failed(first.code, whole, action=first.action, exit_code=exit_code, refused=listed, **so_far)


def show_refused(page: Page, done: Outcomes, verb: str) -> None:
    """One line for each job that was refused, where there were several: `15: not moved, it has succeeded`."""
    if len(done) > 1:
        for id_, error in _refused(done).items():
            page.line(f"  {id_}: {_why(id_, error, verb)}" if id_ else f"  {error.message}")


def _refused(done: Outcomes) -> dict[int, HoldfastError]:
    return {id_: answer for id_, answer in done.items() if isinstance(answer, HoldfastError)}


def _why(id_: int, error: HoldfastError, verb: str) -> str:
    if error.message == f"there is no job {id_}":
        return "there is no such job"
    status = error.context.get("status")
    if status in _STANDS and error.message == f"{error.context.get('verb')}: job {id_} is {status}":
        return f"not {verb}, it {_STANDS[status]}"
    return f"not {verb}: {error.message}"


_STANDS: dict[object, str] = {
    Status.SUCCEEDED.value: "has succeeded",
    Status.FAILED.value: "has failed",
    Status.CANCELLED.value: "was cancelled",
    Status.DEAD_LETTERED.value: "was dead-lettered",
    **{status.value: f"is {status.value}" for status in (Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.STALLED)},
}


def request_for(ids: tuple[int, ...], request_id: str) -> str | None:
    """The request id of a command on one job. For several, one that was drawn is dropped: the ledger draws one for each."""
    if len(ids) == 1:
        return request_id
    if not isinstance(request_id, Drawn):
        only_for_one(ids, request_id=request_id)
    del click.get_current_context().meta[REQUEST_ID]
    return None


def only_for_one(ids: tuple[int, ...], **given: object) -> None:
    """Options that speak of one job are refused for several."""
    for name, value in given.items():
        if value is not None and len(ids) > 1:
            raise misuse(f"--{name.replace('_', '-')} goes with one job, not with {len(ids)}")
