"""Options, decorators and output that the commands for agents share."""

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from holdfast.cli.command import CommandResult, request_option, with_existing_ledger
from holdfast.cli.config import setting
from holdfast.cli.output import Page, usage_error
from holdfast.cli.values import duration, format_time, read_argument
from holdfast.core import strict_json
from holdfast.core.limits import JOB_ID_MAX, REV_MAX, TYPED_BYTES_MAX
from holdfast.errors import LimitExceeded, NotFound, ValidationError

if TYPE_CHECKING:
    from holdfast.agent import Agent, Brief, Collected, Task
    from holdfast.agent.brief import RelatedTask, TaskHistoryEntry
    from holdfast.ledger import Ledger


ResultFunction = Callable[..., CommandResult]

_ID_ARGUMENT = "holdfast.task"


def _agent_or_setting(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    found: str | None = setting("agent") if value is None else value
    return found


def _required_agent(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the agent's name, or raise if there is none. With a default, click would not report the option as missing."""
    found = _agent_or_setting(ctx, param, value)
    if found is None and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=param)
    return found


def _remember_id_argument(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    ctx.meta[_ID_ARGUMENT] = value


def _id_from_argument_or_option(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    named: int | None = ctx.meta.get(_ID_ARGUMENT)
    if value is None and named is None and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=param)
    if value is not None and named is not None:
        raise click.BadParameter("the id is given twice", ctx=ctx, param=param)
    return named if value is None else value


def id_option(function: Any) -> Any:
    """Add the task's id to a command, as an argument and as an option."""
    number = click.IntRange(1, JOB_ID_MAX)
    option = click.option(
        "--id",
        "id_",
        type=number,
        callback=_id_from_argument_or_option,
        metavar="ID",
        help="The id of the task, the same as the argument.",
    )
    argument = click.argument(
        "named", type=number, required=False, is_eager=True, expose_value=False, callback=_remember_id_argument, metavar="[ID]"
    )
    return argument(option(function))


session_option = click.option(
    "--session",
    envvar="HOLDFAST_SESSION",
    default=lambda: setting("session") or "agent",
    metavar="NAME",
    help="Distinguishes agents of one name. Else HOLDFAST_SESSION, session in holdfast.toml, or agent.",
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
        callback=_required_agent if required else _agent_or_setting,
        metavar="NAME",
        help="The agent's name. Else HOLDFAST_AGENT, or agent in holdfast.toml.",
    )


def json_text(value: str) -> msgspec.Raw:
    """Read JSON from the argument itself, from a @file, or from standard input for -. Keep it byte for byte."""
    try:
        body = read_argument(value)
        if not body.strip():
            raise ValidationError("it is empty")
        strict_json.check("it", body, TYPED_BYTES_MAX)
    except LimitExceeded as error:
        raise click.BadParameter(error.message) from None
    except ValidationError as error:
        hint = "A text needs quotes of its own, as in '\"done\"'; @FILE is read from a file, - from a pipe"
        raise click.BadParameter(f"{error.message}. {hint}") from None
    return msgspec.Raw(body)


def json_option(name: str, about: str) -> Callable[[Any], Any]:
    return click.option(name, type=json_text, metavar="JSON|@FILE|-", help=about)


def agent_command(function: ResultFunction) -> Callable[..., None]:
    """Make a command from a function that takes the agent. A ledger that does not exist is not created."""

    def command(ledger: "Ledger", *, agent: str, session: str, fields: tuple[str, ...], **options: Any) -> CommandResult:
        from holdfast.agent import Agent

        check_fields(fields)
        actor = Agent(ledger, agent, session=session, labels=options.pop("labels", ()))
        return pick_fields(function(actor, **options), fields)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    with_options = session_option(agent_option()(with_existing_ledger(command)))
    decorated: Callable[..., None] = field_option(with_options)
    return decorated


def task_command(function: Callable[..., "Task"]) -> Callable[..., None]:
    """Make a command from a function that changes one task. It prints the claim."""
    return _task_command(function, _show_claim)


def task_details_command(function: Callable[..., "Task"]) -> Callable[..., None]:
    """Make a command from a function that changes one task. It prints the whole task."""
    return _task_command(function, show_task)


def _task_command(function: Callable[..., "Task"], show: Callable[[Page, "Task"], None]) -> Callable[..., None]:
    def command(agent: "Agent", *, id_: int, **options: Any) -> CommandResult:
        try:
            task = function(agent, id_, **options)
        except NotFound as error:
            error.message = error.message.replace(f"there is no job {id_}", f"there is no task {id_}")
            error.action = "Check the id: holdfast task list"
            raise

        def show_all(page: Page) -> None:
            show_replayed(page, task)
            show(page, task)

        return CommandResult({"task": task}, show_all)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    decorated: Callable[..., None] = id_option(request_option(attempt_option(agent_command(command))))
    return decorated


def show_replayed(page: Page, answer: "Task | Brief | Collected") -> None:
    """Print that the answer is an earlier one, so that an agent notices if it reuses request ids in a new process."""
    if answer.replayed is True:
        page.line("This request was answered before; nothing was changed. A new call needs a new --request-id.")


def _show_claim(page: Page, task: "Task") -> None:
    if task.claimed_by is None:
        page.line(f"Task {task.id} is {task.status}.")
        return
    cancel = " Cancellation is requested: stop, and release it." if task.cancel_requested else ""
    page.line(f"Task {task.id} is {task.claimed_by}'s until {format_time(task.claim_expires_at)}.{cancel}")


def show_task(page: Page, task: "Task") -> None:
    page.line(f"Task {task.id}: {task.kind} in {task.queue}, {task.status}", bold=True)
    pairs: list[tuple[str, object]] = [
        ("attempt", task.attempt),
        ("claimed by", task.claimed_by),
        ("claim ends", format_time(task.claim_expires_at)),
        ("last heartbeat", format_time(task.last_heartbeat_at)),
        ("stage", task.stage),
        ("progress", task.progress),
    ]
    contents = (("args", task.args), ("checkpoint", task.checkpoint), ("last error", task.last_error), ("result", task.result))
    pairs += [(name, msgspec.json.encode(value).decode()) for name, value in contents if value is not msgspec.UNSET]
    if not isinstance(task.omitted, msgspec.UnsetType):
        pairs += [(name, f"{size} bytes: holdfast task get {task.id}") for name, size in task.omitted.items()]
    if task.cancel_requested:
        pairs.append(("cancel", "requested: stop, and release it"))
    page.fields(pairs)


def show_related(page: Page, blocked_by: "Sequence[RelatedTask]", unlocks: "Sequence[RelatedTask]") -> None:
    for what, related in (("waits for", blocked_by), ("unlocks", unlocks)):
        if related:
            page.line(f"  {what} " + ", ".join(f"{one.id} ({one.kind}, {one.status})" for one in related))


def show_history(page: Page, history: "Sequence[TaskHistoryEntry]") -> None:
    from holdfast.agent.brief import describe_entry

    texts = [describe_entry(e) for e in history]
    rows = [(e.rev, what, e.by, e.attempt, format_time(e.at), why or "–") for e, (what, why) in zip(history, texts, strict=True)]
    page.table(("rev", "event", "by", "attempt", "when", "reason"), rows)


field_option = click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME",
    help="Print only this value, such as task.id; may be repeated, one line each.",
)


def check_fields(fields: Sequence[str]) -> None:
    """Raise if no answer of this command has one of the fields: a mistyped name is an error, not an empty value.

    Call it before the command changes anything.
    """
    if not fields:
        return
    from holdfast.cli.answer_shapes import SHAPES

    context = click.get_current_context()
    if context.params.get("as_json"):
        raise usage_error("--field and --json exclude each other", action="Leave one of them out.")
    name = _command_name(context)
    for field in fields:
        if not any(_has_field(shape, field.split(".")) for shape in SHAPES[name]):
            raise usage_error(f"no answer has a field {field!r:.80}", action=f"See what there is: holdfast schema {name}")


def _command_name(context: click.Context) -> str:
    """Return the command without the name of the program, which may have several words."""
    if context.parent is None:
        return ""
    return f"{_command_name(context.parent)} {context.info_name}".strip()


def _has_field(kind: Any, names: Sequence[str]) -> bool:
    """Return whether a shape has the field. Inside a task's own JSON any field may exist."""
    found = [kind, *get_args(kind)] if get_origin(kind) in (Union, types.UnionType) else [kind]
    structs = [one for one in found if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    if not names or not structs:
        return not names or Any in found
    return any(names[0] in hints and _has_field(hints[names[0]], names[1:]) for hints in map(get_type_hints, structs))


def pick_fields(answer: CommandResult, fields: Sequence[str]) -> CommandResult:
    """Return the answer, with text output that has only these values."""
    if not fields:
        return answer
    whole = msgspec.to_builtins(answer.data)

    def show(page: Page) -> None:
        for field in fields:
            page.line(_field_text(_field_value(whole, field.split("."))))

    return answer._replace(show=show)


def _field_value(found: Any, names: Sequence[str]) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _field_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
