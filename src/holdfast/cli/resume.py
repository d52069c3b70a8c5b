"""`holdfast resume`: an agent goes on with what it was at, or with what is next."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.agents import (
    asks_as_an_agent,
    claim_ttl_option,
    show_history,
    show_related,
    show_replayed,
    show_task,
)
from holdfast.cli.frame import Answer, request_option
from holdfast.cli.page import Page
from holdfast.cli.values import duration

if TYPE_CHECKING:
    from holdfast.agent import Agent, Brief

_WHY = {
    "focus": "It was in focus.",
    "running": "It was running already.",
    "claimed": "It was claimed already.",
    "last": "It was the last one, and was put back.",
    "next": "It is next in order.",
    "expired": "Whoever had it has let its claim expire.",
}


@click.command()
@click.option("--queue", "queues", multiple=True, help="Take new tasks from this queue only; may be repeated.")
@click.option("--kind", "kinds", multiple=True, help="Take new tasks of this kind only; may be repeated.")
@claim_ttl_option
@click.option("--wait", type=duration, metavar="DURATION", help="When no task is ready, wait for one this long: 60s.")
@request_option
@asks_as_an_agent
def resume(agent: "Agent", *, queues: tuple[str, ...], kinds: tuple[str, ...], **options: Any) -> Answer:
    """Continue the task in focus, or take the next one.

    The answer is a brief of the task.

    The rule: the focus if its claim holds or can be renewed; an own task that runs; one that is claimed; the last one if it was
    put back; then higher priority, earlier availability, lower id; then one whose claim somebody has let expire. The task is
    claimed, started and in focus afterwards.

    \b
    Example:
      holdfast resume --agent ada --wait 60s --json
    """
    brief = agent.resume(queues=queues or None, kinds=kinds or None, **options)
    return Answer(brief, lambda page: _show(page, brief))


def _show(page: Page, brief: "Brief") -> None:
    show_replayed(page, brief)
    if brief.task is None:
        from holdfast.agent.idle import in_words

        page.line(in_words(brief.nothing, brief.until))
        return
    show_task(page, brief.task)
    page.line(f"  {_WHY[brief.why]} Reading all of this takes about {brief.tokens} tokens.", dim=True)
    for left in brief.checkpoints:
        page.heading(f"Attempt {left.attempt} left behind")
        page.block(msgspec.json.encode(left.checkpoint).decode())
    show_related(page, brief.blocked_by, brief.unlocks)
    older = brief.history_omitted
    page.heading("Since the agent last looked" if not older else f"Since the agent last looked, without {older} older")
    show_history(page, brief.history)
