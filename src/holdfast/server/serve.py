"""Run the server: the listening socket, the services of the ledger, and an end in order."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import uvicorn
import uvloop

from holdfast.errors import ValidationError
from holdfast.keeping.signals import stop_on_signals
from holdfast.ledger import Ledger
from holdfast.server.access import AccessRules
from holdfast.server.app import Server
from holdfast.server.background import ServerServices
from holdfast.server.connections import connection_class
from holdfast.server.mcp_mount import McpMount
from holdfast.server.sign_in import SignIn
from holdfast.server.start import ServerOptions, StartPlan, check_start
from holdfast.version import install_command

if TYPE_CHECKING:
    from holdfast.services.sinks import Sink

log = logging.getLogger("holdfast.server")

GRACE_SECONDS = 10
"""How long requests may continue after the server was told to stop."""
BACKLOG = 1_024
"""Connections that the system keeps until the server accepts them."""


def _say_nothing(_: str) -> None:
    return None


class LedgerHttpServer(uvicorn.Server):
    """A server that leaves signals to the program. The first request to stop lets requests under way end, the second does not."""

    def __init__(self, app: Server, plan: StartPlan, announce: Callable[[str], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection_class(plan.options.limits.of_connections),
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=GRACE_SECONDS,
                **plan.uvicorn_options(),
            )
        )
        self._app = app
        self._plan = plan
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The program handles signals itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        plan = self._plan
        log.info("serving", extra={"url": plan.url})
        self._announce(f"Serving {plan.url}")
        if plan.prints_link:
            code = await self._app.pools["write"].call(self._app.ledger.local_login_code)
            self._announce(f"Sign in once, within 10 minutes: {plan.sign_in_link(code)}")

    def stop(self, _: signal.Signals | None = None) -> None:
        """Begin to stop. Called from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._app.end()


def plan_of(ledger: Ledger, options: ServerOptions, sinks: "Sequence[Sink]" = ()) -> StartPlan:
    """Return how a server with these options starts. `sinks` are those of an app. Raise ValidationError if it must not."""
    plan = check_start(options, has_tokens=ledger.has_tokens(), sinks=sinks)
    sign_in_of(plan)
    return plan


def sign_in_of(plan: StartPlan) -> SignIn | None:
    """Return how persons sign in by `[server.oidc]`. Raise ValidationError if that is wrong, or its extra is not installed."""
    if plan.options.oidc is None:
        return None
    try:
        from holdfast.server import oidc
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        raise ValidationError(
            f"[server.oidc] needs the package {error.name}", action=install_command("oidc"), field="oidc"
        ) from None
    return oidc.sign_in_of(plan.options.oidc, plan)


def serve_ledger(
    ledger: Ledger,
    plan: StartPlan,
    announce: Callable[[str], object] = _say_nothing,
    shared: socket.socket | None = None,
) -> None:
    """Serve a ledger until SIGTERM or SIGINT. Raise CannotListen, or ValidationError for an option of a service.

    `shared` is the socket of processes that share a port.
    """
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    options = plan.options
    with shared or bind_socket(options.host, options.port) as listening:
        if not options.port:
            chosen = msgspec.structs.replace(options, port=listening.getsockname()[1])
            plan = plan._replace(options=chosen)
        access = AccessRules(
            ledger,
            plan.origins,
            secure=plan.secure,
            redaction=plan.redaction,
            redact_for=options.redact_for,
            caller_limits=options.limits.of_callers,
        )
        mcp = McpMount(ledger) if options.mcp and McpMount.is_installed() else None
        services = ServerServices(ledger, access, plan)
        server = LedgerHttpServer(Server(ledger, access, sign_in_of(plan), mcp, services.states), plan, announce)
        services.start()
        try:
            with stop_on_signals(server.stop, hangup=False):
                _run_in_thread(server, listening)
        finally:
            services.close()


def _run_in_thread(server: LedgerHttpServer, listening: socket.socket) -> None:
    """Run the server until it stops. In the main thread, uvloop would take over the signals of the program."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(server.serve(sockets=[listening]))
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            errors.append(error)

    thread = threading.Thread(target=run, name="holdfast-http")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


class CannotListen(Exception):
    """The address cannot be listened on. The message says why."""


def bind_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen at {host}:{port}: {error.strerror}") from error
    # Accepted connections inherit it. Without it an answer may wait 40 ms for an acknowledgement of the client.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
