"""Commands and options that do not exist any more, with what to use instead."""

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
