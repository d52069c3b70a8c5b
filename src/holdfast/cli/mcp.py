"""`holdfast mcp`: serve the agents' verbs over the Model Context Protocol."""

import os
import stat
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import as_json_option, db_option, key_option, load_keys, open_ledger
from holdfast.cli.config import is_named, ledger_url, setting
from holdfast.cli.output import CommandError, usage_error
from holdfast.cli.values import duration
from holdfast.core.limits import MCP_IDLE_MS_MAX, MCP_TOKENS_MAX
from holdfast.regular_file import read_regular

if TYPE_CHECKING:
    from holdfast.mcp.serve import HttpOptions

TOKEN_VARIABLE = "HOLDFAST_MCP_TOKEN"  # noqa: S105 - its name, not a token
TOKEN_CHARACTERS_MIN = 16
TOKEN_BYTES_MAX = 65_536
PORT_MAX = 65_535
IDLE_MAX = timedelta(milliseconds=MCP_IDLE_MS_MAX)
IDLE_MIN = timedelta(seconds=1)


@click.command()
@click.option("--http", metavar="HOST:PORT", help="Serve HTTP at this address, path /mcp, instead of stdio.")
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
@click.option(
    "--token-file", type=click.Path(dir_okay=False, path_type=Path), help=f"Bearer tokens, one a line. Else {TOKEN_VARIABLE}."
)
@click.option("--allow-remote", is_flag=True, help="Allow an address that other machines can reach. Needs a token.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Accept this host name in requests.")
@key_option
@db_option
@as_json_option
def mcp(
    *,
    http: str | None,
    agent: str | None,
    session: str | None,
    labels: tuple[str, ...],
    idle_limit: timedelta,
    keep: bool,
    token_file: Path | None,
    allow_remote: bool,
    allow_host: tuple[str, ...],
    keys: tuple[str, ...],
    db: str | None,
    as_json: bool,
) -> None:
    """Serve tasks to agents over MCP.

    It runs until the client is gone, or until SIGTERM or SIGINT.

    The server renews a client's claims between its calls, and releases them when the client goes.

    \b
    Example:
      holdfast mcp --db sqlite:////srv/holdfast.db
      holdfast mcp --http 127.0.0.1:8765 --agent reviewer
    """
    if not IDLE_MIN <= idle_limit <= IDLE_MAX:
        raise usage_error("--idle-limit is from 1s to 24h")
    server = _import_server()
    http_options = None if http is None else _http_options(http, token_file, allow_remote, allow_host)
    if http_options is None and (token_file or allow_remote or allow_host):
        raise usage_error("--token-file, --allow-remote and --allow-host are for --http")
    if http_options is not None and session is not None:
        raise usage_error(
            "--session (or HOLDFAST_SESSION) is for one client alone, and --http serves many", action="Leave it out."
        )
    from holdfast.telemetry import logs

    url, ring = ledger_url(db), load_keys(keys)
    logs.configure(json=not sys.stderr.isatty())
    options = server.ServeOptions(agent, session, idle_limit.total_seconds(), keep, labels)
    with open_ledger(url, ring, create=is_named(db), serves=True) as ledger:
        if http_options is None:
            server.serve_stdio(ledger, options)
            return
        try:
            server.serve_http(ledger, options, http_options)
        except OSError as error:
            raise CommandError(
                "unavailable", f"cannot listen at {http}: {error.strerror}", action="Choose another port."
            ) from None


def _import_server() -> ModuleType:
    """Import the server. Raise if the packages that it needs are not installed."""
    try:
        from holdfast.mcp import serve
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        action = "pip install 'holdfast[mcp]'"
        raise CommandError("missing_extra", f"the MCP server needs the package {error.name}", action=action) from None
    return serve


def _http_options(http: str, token_file: Path | None, allow_remote: bool, allow_host: tuple[str, ...]) -> "HttpOptions":
    from holdfast.core.hosts import is_loopback, parse_host_and_port
    from holdfast.mcp.serve import HttpOptions

    host, _, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise usage_error(f"--http {http!r:.80} is not HOST:PORT, such as 127.0.0.1:8765")
    tokens = _read_tokens(token_file)
    for name in allow_host:
        if parse_host_and_port(name) is None:
            raise usage_error(f"--allow-host {name!r:.80} is not HOST or HOST:PORT, such as mcp.example or [::1]:8765")
    if not is_loopback(host) and not (allow_remote and tokens):
        need = "--allow-remote and a token (--token-file)"
        raise usage_error(f"{host} can be reached by others: that needs {need}", action="Listen on 127.0.0.1, or give both.")
    return HttpOptions(host, int(port), tokens, allow_host)


def _read_tokens(file: Path | None) -> tuple[str, ...]:
    """Read the tokens, one per line. Each token is a separate client."""
    if file is None:
        found = os.environ.get(TOKEN_VARIABLE)
        return () if found is None else (_check_token(found, TOKEN_VARIABLE),)
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise usage_error(f"others can read {file}", action=f"chmod 600 {file}")
        text = read_regular(file, TOKEN_BYTES_MAX, forbidden_mode=0o077).decode()
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise usage_error(f"{file} cannot be read: it is not text") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if len(lines) > MCP_TOKENS_MAX or len(set(lines)) != len(lines):
        raise usage_error(f"{file} holds at most {MCP_TOKENS_MAX} tokens, one a line and each once")
    return tuple(_check_token(line, str(file)) for line in lines)


def _check_token(token: str, where: str) -> str:
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise usage_error(f"the token in {where} is not one of {TOKEN_CHARACTERS_MIN} or more printable ASCII characters")
    return token
