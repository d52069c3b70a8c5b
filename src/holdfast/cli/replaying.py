"""Replays of jobs that are named by their ids. One that was replayed before is skipped, unless that is asked for."""

from typing import TYPE_CHECKING, Any

from holdfast.cli.frame import Answer
from holdfast.cli.page import Page
from holdfast.cli.several import Outcomes, each, refusal, show_refused
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Status
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger

_COUNTS = (Status.SUCCEEDED, Status.DEAD_LETTERED)
_COUNTS_IF_REPLAYED = (Status.FAILED, Status.CANCELLED)


def replayed_before(ledger: "Ledger", id_: int, request_id: str | None = None) -> "Job | None":
    """The newest finished replay of a job that makes another one a duplicate.

    The rule is that of `replay_many`: a replay that failed or was cancelled does not count, unless it was replayed itself. A live
    replay is left to the ledger, which gives it back. A replay by this same request is what its answer was about.
    """
    replays = ledger.list(replay_of=id_, order="newest", limit=PAGE_MAX)
    if not replays or (request_id is not None and _made_by(ledger, replays, request_id)):
        return None
    replayed = ledger.newest_replays(job.id for job in replays if job.status in _COUNTS_IF_REPLAYED)
    if any(job.finished_at is None for job in replays):
        return None
    return next((job for job in replays if job.status in _COUNTS or job.id in replayed), None)


def _made_by(ledger: "Ledger", replays: "list[Job]", request_id: str) -> bool:
    return any(ledger.events(job.id, types=["enqueued"], limit=1)[0].request_id == request_id for job in replays)


def replay_named(
    ledger: "Ledger", ids: tuple[int, ...], *, again: bool, reason: str | None, request_id: str | None = None
) -> "tuple[Outcomes, dict[int, Job]]":
    """The outcome for each job, and for each one that was skipped the replay that it has."""
    skipped: dict[int, Job] = {}

    def verb(id_: int) -> "Job":
        before = None if again else replayed_before(ledger, id_, request_id)
        if before is None:
            return ledger.replay(id_, reason=reason, request_id=request_id)
        skipped[id_] = before
        return before

    done = each(ids, verb)
    return {id_: answer for id_, answer in done.items() if id_ not in skipped}, skipped


def replayed(done: Outcomes, skipped: "dict[int, Job]", more: dict[str, Any] | None = None) -> Answer:
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
            page.line(f"  {before_words(id_, job)}")
        show_refused(page, done, "replayed")
        page.line(f"{len(made)} replayed.")
        if skipped:
            page.line(f"{len(skipped)} skipped.")

    return Answer(said, show, refusal(done, said, "replayed"))


def before_words(id_: int, replay: "Job") -> str:
    """`job 5 was replayed before, as 17 (dead_lettered): replay 17, or give --again`."""
    told = f"job {id_} was replayed before, as {replay.id} ({replay.status.value})"
    if replay.status is Status.DEAD_LETTERED:
        return f"{told}: replay {replay.id}, or give --again"
    return (
        f"{told}{', which was replayed too' if replay.status in _COUNTS_IF_REPLAYED else ''}: give --again to replay it once more"
    )
