"""One verb for several jobs: a refusal of one does not hurt the others."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.ending import exit_code_of
from holdfast.cli.envelope import REQUEST_ID, Failed, misuse
from holdfast.cli.frame import Drawn
from holdfast.cli.progress import Progress
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


def refusal(done: Outcomes, so_far: dict[str, Any]) -> Failed | None:
    """What to say of those that were refused; what was done for the others goes with it."""
    refused = {id_: answer for id_, answer in done.items() if isinstance(answer, HoldfastError)}
    if not refused:
        return None
    first = next(iter(refused.values()))
    listed = [{"job_id": id_ or None, "error_code": error.code, "error": error.message} for id_, error in refused.items()]
    whole = first.message if len(refused) == 1 else f"{len(refused)} were refused, the first since {first.message}"
    exit_code = exit_code_of(max(refused.values(), key=exit_code_of))
    return Failed(first.code, whole, action=first.action, exit_code=exit_code, refused=listed, **so_far)


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
