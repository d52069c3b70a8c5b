"""Dead letters by the page, as filters choose them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.envelope import misuse
from holdfast.cli.progress import Progress
from holdfast.cli.several import NO_JOB, Outcomes
from holdfast.cli.values import moment
from holdfast.core.limits import PAGE_MAX
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger


def either(ids: Sequence[int], everything: bool, chosen: Mapping[str, object]) -> None:
    """Jobs are named, or chosen by filters, and not both."""
    if bool(ids) == everything:
        raise misuse("name the jobs, or choose them with --all and filters")
    if ids and any(value is not None for value in chosen.values()):
        raise misuse("filters, --limit and --replayed go with --all, not with ids")


def chosen_ids(ledger: "Ledger", limit: int | None, replayed: bool, chosen: dict[str, Any]) -> Iterator[int]:
    """Those that nobody has discarded, page by page; with `replayed`, only those that were started over."""
    chosen = {**chosen, "since": moment(ledger, chosen["since"])}
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


def replay_all(
    ledger: "Ledger", limit: int | None, chosen: dict[str, Any], *, again: bool = False, reason: str | None = None
) -> tuple[Outcomes, int]:
    """Replay page by page, each page in one transaction. Return the outcomes, and how many dead letters were skipped.

    Those that have been replayed are skipped, unless `again` is true. `reason` says why they are replayed.
    """
    chosen = {**chosen, "since": moment(ledger, chosen["since"]), "again": again, "reason": reason}
    done: Outcomes = {}
    after = skipped = 0
    with Progress("replayed") as progress:
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
