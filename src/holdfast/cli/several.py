"""One verb for several jobs: a refusal of one does not hurt the others."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.cli.ending import exit_code_of
from holdfast.cli.envelope import Failed, misuse
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


def only_for_one(ids: tuple[int, ...], **given: object) -> None:
    """Options that speak of one job are refused for several."""
    for name, value in given.items():
        if value is not None and len(ids) > 1:
            raise misuse(f"--{name.replace('_', '-')} goes with one job, not with {len(ids)}")
