"""`holdfast job requeue` and `holdfast job dead-letter`: decide what becomes of jobs that do not go on by themselves."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.bulk import change_jobs, jobs_result, require_single_job
from holdfast.cli.command import CommandResult, default_actor, request_option, with_ledger
from holdfast.cli.values import JOB_ID, failure_stage_option, reason_code_option
from holdfast.core.limits import REV_MAX

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.ledger.verbs.on_jobs import VerbOnJobs


def _ids_and_rev(function: Callable[..., Any]) -> Callable[..., Any]:
    rev = click.option("--expected-rev", type=click.IntRange(1, REV_MAX), help="Only if this is the job's revision.")
    return click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")(rev(function))


@click.command()
@_ids_and_rev
@click.option("--reason", help="Why, for the record.")
@request_option
@with_ledger
def requeue(ledger: "Ledger", *, ids: tuple[int, ...], **given: Any) -> CommandResult:
    """Queue stalled jobs again.

    Another worker can claim each of them after its backoff. A job without attempts left ends as its policy says.

    \b
    Example:
      holdfast job requeue 12 13 --reason "the worker is gone"
    """
    return _outcome(ledger, ids, given, "requeue", "requeued")


@click.command("dead-letter")
@_ids_and_rev
@reason_code_option("Why, in a word that dead letters are grouped by.", required=True)
@failure_stage_option("Where in its work the job broke. [default: that of its last failure, else exec]")
@request_option
@with_ledger
def dead_letter(ledger: "Ledger", *, ids: tuple[int, ...], **given: Any) -> CommandResult:
    """End live jobs as dead letters.

    They wait for a person or a tool to examine them, and can be replayed: see `holdfast dlq`.

    \b
    Example:
      holdfast job dead-letter 12 --reason-code policy_violation
    """
    return _outcome(ledger, ids, given, "dead_letter", "dead-lettered")


def _outcome(ledger: "Ledger", ids: tuple[int, ...], given: dict[str, Any], verb: "VerbOnJobs", word: str) -> CommandResult:
    """Apply a verb to each job, in the name of the person who types. `word` is like `requeued`."""
    rev = given.pop("expected_rev")
    require_single_job(ids, expected_rev=rev)
    actor = default_actor(list(ledger.ring))  # the system requeues, on behalf of this name
    done = change_jobs(ledger, verb, [(id_, rev) for id_ in dict.fromkeys(ids)], actor=actor, **given)
    return jobs_result(
        done,
        word,
        lambda job: {"job_id": job.id, "status": job.status, "rev": job.rev},
        lambda job: f"Job {job.id} is {job.status.value.replace('_', '-')}.",
    )
