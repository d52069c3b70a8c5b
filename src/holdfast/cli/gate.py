"""`holdfast gate`: may whoever holds a job go on?"""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.frame import Answer, reads_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.values import JOB_ID, age

if TYPE_CHECKING:
    from holdfast.ledger import Ledger


@click.command()
@click.argument("job", type=JOB_ID)
@reads_a_ledger
def gate(ledger: "Ledger", *, job: int) -> Answer:
    """Check whether the holder of a job may go on.

    Exit 0 if it may, 1 if it may not.

    It may while its newest beat is fresh, nothing calls it stalled, and its attempts are within their limit. Whatever is unclear
    is a no. `--json` has the receipt, and with a no the reason.

    \b
    Example:
      holdfast gate 12 && ./move-the-arm
    """
    receipt = ledger.gate(job)
    holder, now_ms = ledger.get(job).owner, int(ledger.now().timestamp() * 1_000)

    def show(page: Page) -> None:
        silent = age(timedelta(milliseconds=now_ms - receipt.emitted_at_tick))
        page.line(f"Job {job} may proceed: {holder or 'its holder'} is {receipt.health_verdict.value}.")
        page.fields(
            [
                ("last beat", f"{silent} ago"),
                ("up for", age(timedelta(milliseconds=receipt.uptime_ms))),
                ("restarts", f"{receipt.restart_count} of {receipt.max_restarts}"),
                ("run", receipt.run_id),
            ]
        )

    return Answer({"job_id": job, "receipt": receipt.to_object()}, show)
