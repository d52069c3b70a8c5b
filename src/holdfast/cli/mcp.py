"""`holdfast mcp`: serve the agents' verbs over the Model Context Protocol."""

import sys
from datetime import timedelta

import click

from holdfast.cli.command import as_json_option, db_option, import_with_extra, key_option, load_keys, open_ledger
from holdfast.cli.config import is_named, ledger_url, setting
from holdfast.cli.output import usage_error
from holdfast.cli.values import duration
from holdfast.core.limits import MCP_IDLE_MS_MAX

IDLE_MAX = timedelta(milliseconds=MCP_IDLE_MS_MAX)
IDLE_MIN = timedelta(seconds=1)


@click.command()
@click.option(
    "--agent",
    envvar="HOLDFAST_AGENT",
    default=lambda: setting("agent"),
    metavar="NAME",
    help="The agent's name. Else HOLDFAST_AGENT, agent in holdfast.toml, or the client's name.",
)
@click.option(
    "--session", envvar="HOLDFAST_SESSION", metavar="NAME", help="Keep jobs for the next process with this session name."
)
@click.option("--label", "labels", multiple=True, help="A label that the agents have, for jobs that require it; may be repeated.")
@click.option("--idle-limit", type=duration, default="30m", show_default=True, help="How long to hold jobs without a call.")
@click.option("--keep", is_flag=True, help="At the end, leave jobs to their leases instead of releasing them.")
@key_option
@db_option
@as_json_option
def mcp(
    *,
    agent: str | None,
    session: str | None,
    labels: tuple[str, ...],
    idle_limit: timedelta,
    keep: bool,
    keys: tuple[str, ...],
    db: str | None,
    as_json: bool,
) -> None:
    """Serve tasks to an agent over MCP.

    It uses standard input and output, and runs until the client is gone, or until SIGTERM or SIGINT. `holdfast serve` serves
    any number of agents over HTTP, at /mcp.

    The server renews a client's claims between its calls, and releases them when the client goes.

    \b
    Example:
      holdfast mcp --db sqlite:////srv/holdfast.db --agent reviewer
    """
    if not IDLE_MIN <= idle_limit <= IDLE_MAX:
        raise usage_error("--idle-limit is from 1s to 24h")
    server = import_with_extra("holdfast.mcp.serve", "mcp", "the MCP server")
    from holdfast.telemetry import logs

    url, ring = ledger_url(db), load_keys(keys)
    logs.configure(json=not sys.stderr.isatty())
    options = server.ServeOptions(agent, session, idle_limit.total_seconds(), keep, labels)
    with open_ledger(url, ring, create=is_named(db), serves=True) as ledger:
        server.serve_stdio(ledger, options)
