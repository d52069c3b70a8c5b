"""What the commands for agents share: who asks, what is typed, how a task is shown."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli import fields as fields_of_answers
from holdfast.cli.address import setting
from holdfast.cli.frame import Answer, reads_a_ledger, request_option
from holdfast.cli.page import Page
from holdfast.cli.typed import typed_bytes
from holdfast.cli.values import duration, stamp
from holdfast.core import strictjson
from holdfast.core.limits import JOB_ID_MAX, REV_MAX, TYPED_BYTES_MAX
from holdfast.errors import LimitExceeded, NotFound, ValidationError

if TYPE_CHECKING:
    from holdfast.agent import Agent, Brief, Collected, Task
    from holdfast.agent.brief import Entry, Related
    from holdfast.ledger import Ledger

Command = Callable[..., Answer]

_NAMED = "holdfast.task"


def _named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    found: str | None = setting("agent") if value is None else value
    return found


def _whoever_asks(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Somebody has to. A default of click's would do for a missing option, whatever it is."""
    found = _named(ctx, param, value)
    if found is None and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=param)
    return found


def _named_first(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    ctx.meta[_NAMED] = value


def _the_task(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    named: int | None = ctx.meta.get(_NAMED)
    if value is None and named is None and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=param)
    if value is not None and named is not None:
        raise click.BadParameter("it is named twice", ctx=ctx, param=param)
    return named if value is None else value


def id_option(function: Any) -> Any:
    """The task, as an argument or as an option."""
    number = click.IntRange(1, JOB_ID_MAX)
    option = click.option(
        "--id", "id_", type=number, callback=_the_task, metavar="ID", help="The id of the task, the same as the argument."
    )
    argument = click.argument(
        "named", type=number, required=False, is_eager=True, expose_value=False, callback=_named_first, metavar="[ID]"
    )
    return argument(option(function))


session_option = click.option(
    "--session",
    envvar="HOLDFAST_SESSION",
    default=lambda: setting("session") or "agent",
    metavar="NAME",
    help="Tells agents of one name apart. Else HOLDFAST_SESSION, session in holdfast.toml, or agent.",
)
attempt_option = click.option(
    "--attempt",
    type=click.IntRange(0, REV_MAX),
    metavar="N",
    help="Only if this is the task's attempt. Keeps an older process out.",
)
ttl_option = click.option(
    "--ttl", type=duration, default="5m", show_default=True, metavar="DURATION", help="How long a new claim lasts: 30s, 5m."
)

claim_ttl_option = click.option(
    "--ttl",
    type=duration,
    metavar="DURATION",
    help="How long the claim lasts: 30s, 5m. Else 5m for a new claim, and as before for one that is renewed.",
)


def agent_option(*, required: bool = True) -> Callable[[Any], Any]:
    return click.option(
        "--agent",
        envvar="HOLDFAST_AGENT",
        callback=_whoever_asks if required else _named,
        metavar="NAME",
        help="The agent's name. Else HOLDFAST_AGENT, or agent in holdfast.toml.",
    )


def json_text(value: str) -> msgspec.Raw:
    """JSON as it is typed, from a @file, or from standard input as -; kept byte for byte."""
    try:
        body = typed_bytes(value)
        if not body.strip():
            raise ValidationError("it is empty")
        strictjson.check("it", body, TYPED_BYTES_MAX)
    except LimitExceeded as error:
        raise click.BadParameter(error.message) from None
    except ValidationError as error:
        hint = "A text needs quotes of its own, as in '\"done\"'; @FILE is read from a file, - from a pipe"
        raise click.BadParameter(f"{error.message}. {hint}") from None
    return msgspec.Raw(body)


def json_option(name: str, about: str) -> Callable[[Any], Any]:
    return click.option(name, type=json_text, metavar="JSON|@FILE|-", help=about)


def asks_as_an_agent(function: Command) -> Callable[..., None]:
    """A command whose function is given the agent that asks. In a ledger that is not there it has no tasks: none is made."""

    def command(ledger: "Ledger", *, agent: str, session: str, fields: tuple[str, ...], **options: Any) -> Answer:
        from holdfast.agent import Agent

        fields_of_answers.check(fields)
        return fields_of_answers.picked(function(Agent(ledger, agent, session=session), **options), fields)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    named = session_option(agent_option()(reads_a_ledger(command)))
    asking: Callable[..., None] = fields_of_answers.field_option(named)
    return asking


def on_a_task(function: Callable[..., "Task"]) -> Callable[..., None]:
    """A mutating verb on one task."""
    return _on_a_task(function, _show_standing)


def takes_a_task(function: Callable[..., "Task"]) -> Callable[..., None]:
    """The same, for a verb whose answer has all that the task is about."""
    return _on_a_task(function, show_task)


def _on_a_task(function: Callable[..., "Task"], show: Callable[[Page, "Task"], None]) -> Callable[..., None]:
    def command(agent: "Agent", *, id_: int, **options: Any) -> Answer:
        try:
            task = function(agent, id_, **options)
        except NotFound as error:
            error.message = error.message.replace(f"there is no job {id_}", f"there is no task {id_}")
            error.action = "Check the id: holdfast task list"
            raise

        def shown(page: Page) -> None:
            show_replayed(page, task)
            show(page, task)

        return Answer({"task": task}, shown)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    asking: Callable[..., None] = id_option(request_option(attempt_option(asks_as_an_agent(command))))
    return asking


def show_replayed(page: Page, answer: "Task | Brief | Collected") -> None:
    """Whoever counts its requests anew with every process must not take an old answer for a new one."""
    if answer.replayed is True:
        page.line("This request was answered before; nothing was changed. A new call needs a new --request-id.")


def _show_standing(page: Page, task: "Task") -> None:
    if task.claimed_by is None:
        page.line(f"Task {task.id} is {task.status}.")
        return
    wish = " Somebody wants it cancelled: stop, and release it." if task.cancel_requested else ""
    page.line(f"Task {task.id} is {task.claimed_by}'s until {stamp(task.claim_expires_at)}.{wish}")


def show_task(page: Page, task: "Task") -> None:
    page.line(f"Task {task.id}: {task.kind} in {task.queue}, {task.status}", bold=True)
    pairs: list[tuple[str, object]] = [
        ("attempt", task.attempt),
        ("claimed by", task.claimed_by),
        ("claim ends", stamp(task.claim_expires_at)),
        ("last heartbeat", stamp(task.last_heartbeat_at)),
        ("stage", task.stage),
        ("progress", task.progress),
    ]
    contents = (("args", task.args), ("checkpoint", task.checkpoint), ("last error", task.last_error), ("result", task.result))
    pairs += [(name, msgspec.json.encode(value).decode()) for name, value in contents if value is not msgspec.UNSET]
    if not isinstance(task.omitted, msgspec.UnsetType):
        pairs += [(name, f"{size} bytes: holdfast task get {task.id}") for name, size in task.omitted.items()]
    if task.cancel_requested:
        pairs.append(("cancel", "somebody wants it cancelled: stop, and release it"))
    page.fields(pairs)


def show_related(page: Page, blocked_by: "Sequence[Related]", unlocks: "Sequence[Related]") -> None:
    for what, related in (("waits for", blocked_by), ("unlocks", unlocks)):
        if related:
            page.line(f"  {what} " + ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related))


def show_history(page: Page, history: "Sequence[Entry]") -> None:
    from holdfast.agent.brief import entry_words

    told = [entry_words(e) for e in history]
    rows = [(e.rev, what, e.by, e.attempt, stamp(e.at), why or "–") for e, (what, why) in zip(history, told, strict=True)]
    page.table(("rev", "event", "by", "attempt", "when", "reason"), rows)
