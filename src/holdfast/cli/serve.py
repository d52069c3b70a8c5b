"""`holdfast serve`: the HTTP server."""

import logging
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import (
    as_json_option,
    db_option,
    exit_code_of,
    import_with_extra,
    key_option,
    load_keys,
    open_ledger,
    report_new_ledger,
)
from holdfast.cli.config import is_named, is_new, ledger_url, load_sinks, setting
from holdfast.cli.output import CommandError, usage_error
from holdfast.errors import HoldfastError, LimitExceeded, ValidationError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

log = logging.getLogger("holdfast.server")
_FILE = click.Path(dir_okay=False)


@click.command()
@click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=int, help="The port to listen on; 0: any free one. [default: 8470]")
@click.option("--tls-cert", type=_FILE, help="The certificate, in PEM.")
@click.option("--tls-key", type=_FILE, help="Its key, in PEM. Only its owner may be able to read it.")
@click.option("--behind-proxy", multiple=True, metavar="NETWORK", help="Trust X-Forwarded headers from here: 10.0.0.0/24.")
@click.option("--public-url", metavar="URL", help="The address that clients use: https://jobs.example.org.")
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", help="Accept this host name in requests.")
@click.option("--allow-origin", "allow_origins", multiple=True, metavar="ORIGIN", help="Let pages from here call with a token.")
@click.option("--redact", multiple=True, metavar="PATTERN", help="Hide these contents from readers and clients: *.password.")
@click.option("--link/--no-link", default=None, help="Print a link that signs in a person. [default: on loopback without tokens]")
@click.option("--processes", type=int, help="Run this many server processes; they need PostgreSQL. [default: 1]")
@key_option
@db_option
@as_json_option
def serve(*, db: str | None, keys: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Serve the ledger over HTTP, for workers and for people.

    It runs until SIGTERM or SIGINT. It also sweeps, prunes, counts, delivers events to sinks, and seals, unless another
    process does.

    Options can also be in [server] of holdfast.toml. An address that others can reach needs TLS, and a token or a provider of
    sign-ins.

    \b
    Example:
      holdfast serve
      holdfast serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    server = import_server()
    from holdfast.server.start import read_options
    from holdfast.telemetry import logs

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    url, ring = ledger_url(db), load_keys(keys)
    logs.configure(json=not sys.stderr.isatty())
    try:
        options = read_options({**(setting("server") or {}), **chosen})
        creates = is_named(db) and is_new(url)
        open_own = partial(open_ledger, url, ring, create=is_named(db), serves=True)
        if options.processes > 1:
            _serve_several(server, options, url, open_own)
        else:
            _serve_one(server, options, open_own, click.echo, new=url if creates else None)
    except (LimitExceeded, ValidationError) as error:
        raise usage_error(error.message, action=error.action) from None
    except server.CannotListen as error:
        raise CommandError("unavailable", str(error), action="Choose another port.") from None


def _serve_one(
    server: ModuleType,
    options: Any,
    open_own: "Callable[[], Ledger]",
    announce: Any,
    listening: Any = None,
    *,
    new: str | None = None,
) -> None:
    """Open the ledger and serve it. `new` is its url if it did not exist before."""
    with open_own() as ledger:
        if new is not None:
            report_new_ledger(new)
        plan = server.plan_of(ledger, options, load_sinks(options.sinks_of))
        server.serve_ledger(ledger, plan, announce=announce, shared=listening)


def _serve_several(server: ModuleType, options: Any, url: str, open_own: "Callable[[], Ledger]") -> None:
    """Run several server processes that accept from one socket. One that ends is started again."""
    from holdfast.core.urls import sqlite_file
    from holdfast.supervise.worker_processes import MISUSE, WorkerProcesses

    if sqlite_file(url):
        raise usage_error("several server processes need PostgreSQL", action="Leave out --processes.")
    listening = server.bind_socket(options.host, options.port)

    def serve_in_child(number: int) -> int:
        try:
            _serve_one(server, options, open_own, click.echo if number == 1 else str, listening)
        except (CommandError, HoldfastError) as error:
            log.error(error.message, extra={"error_code": error.code, "action": error.action})  # noqa: TRY400
            return MISUSE if isinstance(error, LimitExceeded | ValidationError) else exit_code_of(error)
        return 0

    with listening:
        ended = WorkerProcesses(options.processes, serve_in_child).run()
    if ended.exit_code:
        words = "not all server processes have stopped in order"
        raise CommandError("gave_up", words, action="The log says why.", exit_code=ended.exit_code)


def import_server() -> ModuleType:
    return import_with_extra("holdfast.server.serve", "server", "the server")
