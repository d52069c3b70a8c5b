"""`holdfast task` and `holdfast resume`: an agent's verbs on its tasks."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.agent_commands import (
    agent_command,
    agent_option,
    claim_ttl_option,
    id_option,
    json_option,
    session_option,
    show_history,
    show_related,
    show_replayed,
    show_task,
    task_command,
    task_details_command,
    ttl_option,
)
from holdfast.cli.command import (
    REFUSED,
    CommandResult,
    NounGroup,
    as_json_option,
    db_option,
    key_option,
    load_keys,
    open_ledger,
    print_result,
    request_option,
    with_existing_ledger,
)
from holdfast.cli.config import ledger_url
from holdfast.cli.flow_options import label_option
from holdfast.cli.output import HINTS, CommandError, Page, usage_error
from holdfast.cli.values import WholeNumber, duration, failure_stage_option, format_time, reason_code_option
from holdfast.core import policy
from holdfast.core.limits import INTEGER_MAX, JOB_ID_MAX, LEASE_MS_MAX, LEASE_MS_MIN, PAGE_MAX
from holdfast.core.model import Phase, Status
from holdfast.errors import Conflict

if TYPE_CHECKING:
    from holdfast.agent import Agent, Brief, Task
    from holdfast.ledger import Ledger


@click.group(cls=NounGroup)
def task() -> None:
    """Claim, renew and finish tasks as an agent.

    \b
    Example:
      holdfast task start 12 --agent ada --request-id r1
      holdfast task heartbeat 12 --agent ada --request-id r2
      holdfast task complete 12 --agent ada --request-id r3 --result '{"pages": 3}'
    """


@task.command()
@claim_ttl_option
@label_option
@task_details_command
def start(agent: "Agent", id_: int, **options: Any) -> "Task":
    """Claim and start a task, and make it the focus.

    The task must be free, held by the agent (its claim is renewed, for --ttl if that is given), or have an expired claim. The
    answer is the whole task.

    \b
    Example:
      holdfast task start 12 --agent ada --request-id r-1
    """
    return agent.start(id_, **options)


@task.command()
@click.option("--stage", metavar="NAME", help="The stage of the work.")
@click.option("--progress", type=WholeNumber(0, INTEGER_MAX), metavar="N", help="The progress of the work.")
@json_option("--checkpoint", "A checkpoint for this attempt or a later one.")
@task_command
def heartbeat(agent: "Agent", id_: int, *, checkpoint: Any, **options: Any) -> "Task":
    """Renew the claim on a task.

    \b
    Example:
      holdfast task heartbeat 12 --agent ada --request-id r-2 --progress 3
    """
    given = {} if checkpoint is None else {"checkpoint": checkpoint}
    return agent.heartbeat(id_, **given, **options)


@task.command()
@json_option("--result", "The result of the task. [default: null]")
@task_command
def complete(agent: "Agent", id_: int, **options: Any) -> "Task":
    """Complete a task.

    \b
    Example:
      holdfast task complete 12 --agent ada --request-id r-3 --result '{"pages": 3}'
      holdfast task complete 12 --agent ada --request-id r-3 --result @result.json
    """
    return agent.complete(id_, **options)


@task.command()
@click.option("--error", required=True, metavar="TEXT", help="What went wrong.")
@click.option("--permanent", is_flag=True, help="Do not try again.")
@reason_code_option("The reason code. With --permanent: dead-letter the task for this reason.")
@failure_stage_option("The stage that failed.")
@click.option(
    "--retry-after",
    type=duration,
    metavar="DURATION",
    help="Retry no sooner than after this time: 30s, 5m. Else after the task's backoff.",
)
@task_command
def fail(agent: "Agent", id_: int, *, permanent: bool, **options: Any) -> "Task":
    """Fail a task.

    It is retried while attempts are left, unless --permanent is given.

    \b
    Example:
      holdfast task fail 12 --agent ada --request-id r-4 --error 'no route'
    """
    return agent.fail(id_, retryable=not permanent, **options)


@task.command()
@click.option("--reason", help="Why, for the record.")
@task_command
def release(agent: "Agent", id_: int, **options: Any) -> "Task":
    """Release a task.

    Other agents may take it at once. The attempt does not count.

    \b
    Example:
      holdfast task release 12 --agent ada --request-id r-5 --reason "out of credits"
    """
    return agent.release(id_, **options)


@task.command()
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=PAGE_MAX, show_default=True, help="The most tasks to release.")
@request_option
@agent_command
def gc(agent: "Agent", *, limit: int, request_id: str) -> CommandResult:
    """Release tasks whose claims have expired.

    \b
    Example:
      holdfast task gc --agent ada --request-id r-6
    """
    done = agent.gc(limit=limit, request_id=request_id)
    listed = ", ".join(map(str, done.released)) or "none"
    more = " There may be more." if done.more else ""

    def show(page: Page) -> None:
        show_replayed(page, done)
        page.line(f"Released: {listed}.{more}")

    return CommandResult(done, show)


@task.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
@click.option("--queue", "queues", multiple=True, help="Take new tasks from this queue only; may be repeated.")
@click.option("--kind", "kinds", multiple=True, help="Take new tasks of this kind only; may be repeated.")
@label_option
@ttl_option
@click.option("--grace", type=duration, default="10s", show_default=True, help="Time between SIGTERM and SIGKILL.")
@click.option("--once", is_flag=True, help="Do one task at most.")
@click.option("--wait", is_flag=True, help="When no task is ready, wait for one, until a signal.")
@session_option
@agent_option()
@key_option
@db_option
@as_json_option
def run(*, keys: tuple[str, ...], db: str | None, as_json: bool, **options: Any) -> None:
    """Run a command on one task after another.

    It ends when no task is ready.

    The command gets the brief of its task on standard input, as JSON, and HOLDFAST_TASK, HOLDFAST_ATTEMPT, HOLDFAST_AGENT,
    HOLDFAST_SESSION and HOLDFAST_URL in its environment. The claim is renewed while the command runs. If it exits with 0, the
    task is completed, and the standard output is its result, JSON or text. If it exits with 75 or by a signal, the task is
    retried. With any other code the task has failed. A line {"checkpoint": …} on descriptor 3 saves a checkpoint.

    \b
    Example:
      holdfast task run --agent ada --once -- python summarize.py
    """
    url = ledger_url(db)
    with open_ledger(url, load_keys(keys), create=False, serves=True) as ledger:
        answer = _run_tasks(ledger, url, **options)
    print_result(answer, as_json)


def _run_tasks(
    ledger: "Ledger", url: str, *, agent: str, session: str, command: tuple[str, ...], ttl: Any, grace: timedelta, **which: Any
) -> CommandResult:
    from holdfast.agent import Agent
    from holdfast.agent.selection import format_unavailable_tasks
    from holdfast.supervise.heartbeats import shell_exit_code
    from holdfast.supervise.task_attempt import CommandNotStarted
    from holdfast.supervise.task_loop import TaskLoop, TaskSelection

    ttl_ms = policy.duration_ms("ttl", ttl, LEASE_MS_MIN, LEASE_MS_MAX)
    selection = TaskSelection(which["queues"] or None, which["kinds"] or None, ttl_ms)
    actor = Agent(ledger, agent, session=session, labels=which["labels"])
    loop = TaskLoop(ledger, actor, command, selection, url=url, grace_s=grace.total_seconds(), report=Page().remark)
    try:
        done = loop.run(once=which["once"], wait=which["wait"])
    except Conflict as refused:
        action = "Stop that process, or give this one a --session of its own."
        raise CommandError(refused.code, refused.message, action=action, **refused.context) from None
    except CommandNotStarted as error:
        words = f"{command[0]!r:.200} cannot be run: {error}. Its task was released"
        raise CommandError("unrecoverable_error", words, exit_code=shell_exit_code(error.errno) or REFUSED) from None
    counts = ", ".join(f"{number} {name}" for name, number in done.items() if number)
    words = f"Tasks: {counts}." if counts else "There was nothing to do."
    if loop.idle_reason is not None and loop.idle_reason.then == "wait":
        words += f" Left: {format_unavailable_tasks(loop.idle_reason)}."
    return CommandResult({"tasks": done}, lambda page: page.line(words))


@task.command("list")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([*(status.value for status in Status), "in_progress"]),
    help="Only tasks with this status; may be repeated.",
)
@click.option(
    "--phase",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase]),
    help="Only running and stalled tasks in this phase.",
)
@click.option("--queue", help="Only tasks in this queue.")
@click.option("--kind", help="Only tasks of this kind.")
@click.option("--claimed-by", "owner", metavar="NAME", help="Only tasks that this agent holds, in any session.")
@click.option("--mine", is_flag=True, help="Only tasks that --agent holds, in its --session.")
@agent_option(required=False)
@session_option
@click.option("--after", type=click.IntRange(0, JOB_ID_MAX), default=0, help="Show the next page: jobs after this id.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="The most rows to show.")
@with_existing_ledger
def list_(
    ledger: "Ledger",
    *,
    mine: bool,
    agent: str | None,
    session: str,
    status: tuple[str, ...],
    phase: tuple[str, ...],
    limit: int,
    **filters: Any,
) -> CommandResult:
    """List tasks and their holders.

    \b
    Example:
      holdfast task list --claimed-by ada
      holdfast task list --mine --agent ada
    """
    from holdfast.agent.tasks import task_of

    if mine:
        if agent is None:
            raise usage_error("--mine needs --agent", action=HINTS["agent"])
        filters |= {"owner": agent, "incarnation": session}
    jobs = ledger.list(status=status or None, phase=phase or None, limit=limit, **filters)
    found = [task_of(job.record) for job in jobs]
    more = jobs.next_after
    heads = ("task", "kind", "queue", "status", "priority", "attempt", "claimed by", "claim ends")
    rows = [
        (t.id, t.kind, t.queue, t.status, t.priority, t.attempt, t.claimed_by or "–", format_time(t.claim_expires_at))
        for t in found
    ]
    data = {"tasks": found, "next_after": more}
    return CommandResult(data, lambda page: page.listing(heads, rows, "There are no such tasks.", more=more))


@task.command()
@id_option
@with_existing_ledger
def get(ledger: "Ledger", *, id_: int) -> CommandResult:
    """Show one task and the newest part of its history.

    \b
    Example:
      holdfast task get 12
    """
    from holdfast.agent import get_task

    found = get_task(ledger, id_)

    def show(page: Page) -> None:
        show_task(page, found.task)
        show_related(page, found.blocked_by, found.unlocks)
        older = found.history_omitted
        page.heading("History" if not older else f"History, without the first {older}")
        show_history(page, found.history)

    return CommandResult(found, show)


_CHOICE_REASONS = {
    "focus": "It was in focus.",
    "running": "It was running already.",
    "claimed": "It was claimed already.",
    "last": "It was the last task, and was requeued.",
    "next": "It is next in order.",
    "expired": "The claim of its last holder has expired.",
}


@click.command()
@click.option("--queue", "queues", multiple=True, help="Take new tasks from this queue only; may be repeated.")
@click.option("--kind", "kinds", multiple=True, help="Take new tasks of this kind only; may be repeated.")
@label_option
@claim_ttl_option
@click.option("--wait", type=duration, metavar="DURATION", help="When no task is ready, wait for one this long: 60s.")
@request_option
@agent_command
def resume(agent: "Agent", *, queues: tuple[str, ...], kinds: tuple[str, ...], **options: Any) -> CommandResult:
    """Continue the task in focus, or take the next one.

    The answer is a brief of the task.

    The order: the task in focus, if its claim is valid or can be renewed; a task that the agent runs; one that it has claimed;
    the agent's last task, if it was requeued; then by higher priority, earlier availability, lower id; then a task whose claim
    has expired. Afterwards the task is claimed, started and in focus.

    \b
    Example:
      holdfast resume --agent ada --wait 60s --json
    """
    brief = agent.resume(queues=queues or None, kinds=kinds or None, **options)
    return CommandResult(brief, lambda page: _show_brief(page, brief))


def _show_brief(page: Page, brief: "Brief") -> None:
    show_replayed(page, brief)
    if brief.task is None:
        from holdfast.agent.selection import format_idle

        page.line(format_idle(brief.nothing, brief.until))
        return
    show_task(page, brief.task)
    page.line(f"  {_CHOICE_REASONS[brief.why]} Reading all of this takes about {brief.tokens} tokens.", dim=True)
    for saved in brief.checkpoints:
        page.heading(f"Checkpoint of attempt {saved.attempt}")
        page.block(msgspec.json.encode(saved.checkpoint).decode())
    show_related(page, brief.blocked_by, brief.unlocks)
    older = brief.history_omitted
    page.heading("Since the agent last looked" if not older else f"Since the agent last looked, without {older} older")
    show_history(page, brief.history)
