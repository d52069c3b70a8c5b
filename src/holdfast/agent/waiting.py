"""Waiting for a task: until the ledger wakes the agent, or a time comes at which there may be one."""

import time
from collections.abc import Callable
from datetime import timedelta

from holdfast.agent.brief import Brief
from holdfast.core.limits import PAGE_MAX
from holdfast.ledger import Ledger

TICK = timedelta(milliseconds=1)
"""A claim is over after its last moment."""
AGAIN_SECONDS = 1.0
"""When to look again at what is due and cannot be had: another transaction has it, or no attempt is left."""


def wait_for(ledger: Ledger, resume: Callable[[], Brief], seconds: float) -> Brief:
    """The first brief with a task, or the last one when the time is over."""
    deadline = time.monotonic() + seconds
    waiter = ledger.waiter()
    try:
        while True:
            brief = resume()
            left = deadline - time.monotonic()
            if brief.task is not None or left <= 0:
                return brief
            waiter.wait(min(left, _until_due(ledger, brief, left)))
    finally:
        waiter.close()


def _until_due(ledger: Ledger, brief: Brief, most: float) -> float:
    """Seconds until the next task is due, or until a claim of somebody else ends. Of claims, the 1,000 oldest tasks count."""
    held = brief.nothing is not None and brief.nothing.held > 0
    claims = [job.claim_expires_at for job in ledger.list(status=["claimed", "running"], limit=PAGE_MAX)] if held else []
    now = ledger.now()
    waits = [(at + TICK - now).total_seconds() for at in (brief.until, *claims) if at is not None]
    return min((seconds if seconds > 0 else AGAIN_SECONDS for seconds in waits), default=most)
