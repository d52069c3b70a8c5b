"""What `holdfast task run` does at the ledger that it was given."""

import errno
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.agent import Agent
from holdfast.cli.envelope import Failed
from holdfast.cli.frame import Answer
from holdfast.cli.page import Page
from holdfast.core import limits, policy
from holdfast.errors import Conflict
from holdfast.supervise.tasks import NotRun, TaskLoop, Wish

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

NOT_FOUND, NOT_RUN = 127, 126


def run_tasks(
    ledger: "Ledger",
    url: str,
    *,
    agent: str,
    session: str,
    command: tuple[str, ...],
    queues: tuple[str, ...],
    kinds: tuple[str, ...],
    ttl: timedelta,
    grace: timedelta,
    once: bool,
    wait: bool,
) -> Answer:
    ttl_ms = policy.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    wish = Wish(queues or None, kinds or None, ttl_ms)
    page = Page()
    loop = TaskLoop(
        ledger, Agent(ledger, agent, session=session), command, wish, url=url, grace_s=grace.total_seconds(), say=page.remark
    )
    try:
        done = loop.run(once=once, wait=wait)
    except Conflict as refused:
        action = "Stop that process, or give this one a --session of its own."
        raise Failed(refused.code, refused.message, action=action, **refused.context) from None
    except NotRun as error:
        missing = error.errno == errno.ENOENT
        words = f"{command[0]!r:.200} cannot be {'found' if missing else 'run'}; its task was handed back"
        raise Failed("unrecoverable_error", words, exit_code=NOT_FOUND if missing else NOT_RUN) from None
    counts = ", ".join(f"{number} {name}" for name, number in done.items() if number)
    return Answer({"tasks": done}, lambda page: page.line(f"Tasks: {counts}." if counts else "There was nothing to do."))
