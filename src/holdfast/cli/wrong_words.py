"""Commands and options that do not exist, with what to use instead: words of other tools, of older versions, mistyped ones."""

from collections.abc import Iterator
from difflib import SequenceMatcher

import click

_MCP_OVER_HTTP = "Use holdfast serve: agents connect to its /mcp with a token."
_HEADS = "Use a sink of the message TREE_HEAD: it delivers every head, at least once and in order."
_SEAL = "Run holdfast seal beside the worker."
GONE = {
    "dlq list --reason": "Use --reason-code.",
    "dlq replay --because": "Use --reason.",
    "events export --dialect": "Use holdfast events tail --once --json --dialect NAME.",
    "events get": "Use holdfast job events ID.",
    "events show": "Use holdfast job events ID.",
    "job enqueue --for-worker-for": "Give the job to any worker later: holdfast job move ID --any-worker.",
    "mcp --allow-host": _MCP_OVER_HTTP,
    "mcp --allow-remote": _MCP_OVER_HTTP,
    "mcp --http": _MCP_OVER_HTTP,
    "mcp --token-file": _MCP_OVER_HTTP,
    "queue set --ageing": "Priorities do not rise by themselves: raise that of a job with holdfast job reprioritise.",
    "schedule add --for-worker-for": "Give its jobs to any worker later: holdfast job move ID --any-worker.",
    "seal --anchor-private": _HEADS,
    "seal --anchor-url": _HEADS,
    "task fail --reason": "Use --reason-code.",
    "worker run --anchor": _SEAL,
    "worker run --anchor-every": _SEAL,
    "worker run --anchor-private": _SEAL,
    "worker run --anchor-url": _SEAL,
    "worker run --seal": _SEAL,
}
"""What to use instead of a command, or of a command's option. The key is what was typed, without the program and the values."""


def replacement(error: click.UsageError) -> str | None:
    """Return what to use instead of the option or command that does not exist, or None if there never was one."""
    typed = getattr(error, "option_name", None) or getattr(error, "command_name", None)
    words, context = [typed or ""], error.ctx
    while context is not None and context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent
    return GONE.get(" ".join(words))


_MEANT = {
    "add create insert make new publish push put send submit": ("add", "new", "set", "enqueue", "job enqueue"),
    "all find list ls ps search": ("list", "job list"),
    "pending queued ready waiting": ("list", "job list --status=queued"),
    "active executing in-progress running": ("list", "job list --status=running"),
    "errors failed failures": ("list", "job list --failed"),
    "dead deadletter deadletters dead-letters": ("dead-letter", "dlq list"),
    "describe info inspect view": ("get", "list", "job get"),
    "get show": ("list", "job get"),
    "status": ("get", "list", "top"),
    "metrics monitor overview stats": ("list", "top"),
    "diagnose health ping check": ("heartbeat", "doctor"),
    "claim dequeue fetch next pop pull receive reserve take": ("start", "preview", "task start"),
    "ack close complete done finish resolve success succeed": ("complete", "close", "task complete"),
    "error fail nack reject": ("fail", "task fail"),
    "giveup return unclaim": ("release", "task release"),
    "extend keepalive progress renew touch": ("heartbeat", "task heartbeat"),
    "del delete destroy remove rm": ("remove", "cancel", "discard", "revoke", "unset", "drop", "job cancel"),
    "abort end kill stop terminate": ("cancel", "pause", "job cancel"),
    "clear empty flush purge": ("dlq discard", "job cancel --dry-run"),
    "redo redrive repeat rerun resubmit retry": ("replay", "revive", "job replay"),
    "consume launch process run up work": ("run", "worker run"),
    "begin restart start": ("run", "resume", "unpause", "revive", "start", "worker run"),
    "disable freeze hold suspend": ("pause", "queue pause"),
    "continue enable unfreeze": ("unpause", "resume", "queue unpause"),
    "consumers": ("list", "worker list"),
    "history log logs": ("events", "events tail"),
    "follow stream watch": ("wait", "tail", "events tail"),
    "output value": ("result", "job result"),
    "await join": ("wait", "job wait"),
    "reason why": ("explain",),
    "defer postpone snooze": ("reschedule", "job reschedule"),
    "bump prioritise prioritize priority": ("reprioritise", "job reprioritise"),
    "cron crontab periodic": ("add", "schedule add"),
    "fire now trigger": ("run", "schedule run"),
    "install init setup upgrade": ("migrate",),
    "dump": ("export", "events export"),
    "api daemon dashboard http server ui web": ("serve",),
    "generate": ("new", "key new"),
    "configure edit update": ("set", "policy set"),
    "help": ("--help",),
    "version": ("--version",),
}
ELSEWHERE = {word: meant for words, meant in _MEANT.items() for word in words.split()}
"""What is meant by the words of other tools. After a group, the first that the group has: a verb, or a command of this group.
At the top, and after a group of commands about jobs that has none of them, the last."""
_ALIKE = {"resume": "unpause", "unpause": "resume"}
"""Verbs of the same meaning. A group has one of them."""
_ABOUT_JOBS = ("", "job", "task", "queue", "dlq")

SIMILAR_MIN = 0.7
"""How similar a name must be to what was typed, as `difflib` measures it."""


class UnknownCommand(click.UsageError):
    """There is no such command. `meant` are those that may be meant, without the program."""

    def __init__(self, typed: str, ctx: click.Context, meant: list[str]) -> None:
        super().__init__(f"No such command {typed!r:.80}.", ctx)
        self.command_name = typed
        self.meant = meant

    @property
    def action(self) -> str:
        """Where to read about the first command that may be meant, or an empty text."""
        words = self.meant[0].split() if self.meant else []
        return " ".join(["See: holdfast", *(word for word in words if word[0] != "-"), "--help"]) if words else ""

    def format_message(self) -> str:
        guess = f" Did you mean {' or '.join(map(repr, self.meant))}?" if self.meant else ""
        return f"{self.message}{guess}"


def unknown_command(ctx: click.Context, typed: str) -> UnknownCommand:
    """Return the error for a word that is no command of the group of `ctx`."""
    root = ctx.find_root()
    group = "" if ctx is root else ctx.info_name or ""
    return UnknownCommand(typed, ctx, _meant(_verbs_by_group(root), group, typed))


def _meant(verbs: dict[str, list[str]], group: str, typed: str) -> list[str]:
    """Return the commands that may be meant by a word after a group, or at the top, where the group is an empty text.

    `verbs` are the commands of each group and at the top.
    """
    if typed in ELSEWHERE:
        return _first_of(verbs, group, ELSEWHERE[typed])
    if group and _ALIKE.get(typed) in verbs[group]:
        return [f"{group} {_ALIKE[typed]}"]
    if not group and typed.removesuffix("s") in verbs[""]:
        return [typed.removesuffix("s")]
    if exact := [path for path, verb in _paths(verbs) if verb == typed]:
        return exact
    near = [(SequenceMatcher(None, typed, verb).ratio(), path) for path, verb in _paths(verbs)]
    best = max(ratio for ratio, _ in near)
    nearest = [path for ratio, path in near if ratio == best] if best >= SIMILAR_MIN else []
    return [path for path in nearest if path.rpartition(" ")[0] == group] or nearest


def _first_of(verbs: dict[str, list[str]], group: str, meant: tuple[str, ...]) -> list[str]:
    for one in meant if group else ():
        if one in verbs[group]:
            return [f"{group} {one}"]
        if one.startswith(f"{group} "):
            return [one]
    return [meant[-1]] if group in _ABOUT_JOBS else []


def _paths(verbs: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield each command and its last word."""
    for group, names in verbs.items():
        yield from ((f"{group} {name}".lstrip(), name) for name in names)


def _verbs_by_group(root: click.Context) -> dict[str, list[str]]:
    assert isinstance(root.command, click.Group)
    top = root.command.list_commands(root)
    groups = {name: root.command.get_command(root, name) for name in top}
    return {"": top} | {name: group.list_commands(root) for name, group in groups.items() if isinstance(group, click.Group)}
