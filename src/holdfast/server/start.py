"""The options of `holdfast serve`, and what a server refuses to start with.

A server that others can reach needs configured credentials and TLS: a certificate of its own, or a proxy that is
declared. Everything is checked before the server listens.
"""

import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.access import AccessRole
from holdfast.core.hosts import PORT_MAX, AllowedHosts, is_loopback, parse_host_and_port
from holdfast.errors import ValidationError
from holdfast.files.regular import read_regular
from holdfast.server.access import REDACT_FOR, CallerLimits
from holdfast.server.connections import ConnectionLimits, allowed_connections
from holdfast.server.origins import SiteOrigins, check_origins
from holdfast.server.redact import Redaction
from holdfast.server.service_options import SERVICES, SealOptions, ServiceName, SinkOptions, make_sinks
from holdfast.services.pruner import KEEP_BEATS, KEEP_MS_MAX

if TYPE_CHECKING:
    from holdfast.services.sinks import Sink

HOST, PORT = "127.0.0.1", 8470
EXAMPLE_SECRETS = frozenset({"changeme", "client-secret", "secret", "s3cret", "password", "example"})
"""Secrets that documentation and examples use. A server does not start with them."""
PROCESSES_MAX = 256
SECRET_CHARACTERS_MIN = 16
SECRET_BYTES_MAX = 4_096
_OTHERS_MAY = 0o077


class ServerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits that can be lowered or raised in `[server]` of holdfast.toml. Times are in seconds."""

    requests_max: int = limits.HTTP_PRINCIPAL_REQUESTS_MAX
    """Requests of one caller that are under way at once."""
    rate: int = limits.HTTP_PRINCIPAL_RATE
    """Requests of one caller in a second."""
    burst: int = limits.HTTP_PRINCIPAL_BURST
    wrong_tokens_max: int = limits.HTTP_WRONG_TOKENS_MAX
    """Wrong tokens from one address in a minute."""
    head_bytes_max: int = limits.HTTP_HEAD_BYTES_MAX
    headers_max: int = limits.HTTP_HEADERS_MAX
    head_s: float = limits.HTTP_HEAD_MS_MAX / 1_000
    body_s: float = limits.HTTP_BODY_MS_MAX / 1_000
    idle_s: float = limits.HTTP_IDLE_MS_MAX / 1_000
    connections_max: int = limits.HTTP_CONNECTIONS_MAX

    @property
    def of_callers(self) -> CallerLimits:
        return CallerLimits(self.requests_max, self.rate, self.burst, self.wrong_tokens_max)

    @property
    def of_connections(self) -> ConnectionLimits:
        return ConnectionLimits(
            head_bytes_max=self.head_bytes_max,
            headers_max=self.headers_max,
            head_s=self.head_s,
            body_s=self.body_s,
            idle_s=self.idle_s,
            connections_max=allowed_connections(self.connections_max),
        )


class OidcOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of an OpenID Connect provider. `oidc.py` uses them."""

    issuer: str
    """Its address, such as https://login.example.org. Without TLS only on a loopback address."""
    client_id: str
    client_secret_file: Path | None = None
    """Without one, the server is a public client."""
    role_claim: str = "groups"
    """The claim whose text, or list of texts, gives the role."""
    roles: dict[str, AccessRole] = {}
    """The role for each value of that claim. A person with several has the strongest; one with none may not sign in."""
    name_claim: str = "email"
    """The claim with the name of the person in events."""
    label: str = ""
    """The name of the provider for people: "Sign in with LABEL". By default the host of the issuer."""


class ServerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a server, from the command line and from `[server]` of holdfast.toml."""

    host: str = HOST
    """The address to listen on."""
    port: int = PORT
    processes: int = 1
    """Server processes that share the port. More than one need PostgreSQL."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: tuple[str, ...] = ()
    """The networks of proxies whose X-Forwarded headers are trusted, such as 10.0.0.0/24."""
    public_url: str | None = None
    """The address that clients use, such as https://jobs.example.org."""
    allowed_hosts: tuple[str, ...] = ()
    """Further host names that requests may use."""
    allow_origins: tuple[str, ...] = ()
    """Origins of pages that may call with a token."""
    redact: tuple[str, ...] = ()
    """Patterns of contents that some roles do not see."""
    redact_for: tuple[AccessRole, ...] = tuple(sorted(REDACT_FOR))
    oidc: OidcOptions | None = None
    mcp: bool = True
    """Whether agents reach the server at /mcp, if the extra `mcp` is installed."""
    link: bool | None = None
    """Whether to print a link that signs in a person. By default on a loopback address without tokens."""
    limits: ServerLimits = ServerLimits()
    services: tuple[ServiceName, ...] = SERVICES
    """The services that run inside. A relay needs sinks, and a sealer an enrolled server key."""
    keep_jobs: float | str | None = None
    """How long finished jobs are kept, such as 30d. By default they are kept."""
    keep_failed: float | str | None = None
    """How long failed jobs and dead letters are kept that are neither discarded nor replayed."""
    keep_beats: float | str | None = KEEP_BEATS
    """How long the contents of heartbeats are kept."""
    sinks: tuple[SinkOptions, ...] = ()
    """The webhooks to which the relay delivers events."""
    sinks_of: str | None = None
    """An app, as module:app, to whose sinks the relay delivers events as well."""
    seal: SealOptions = SealOptions()


class StartPlan(NamedTuple):
    """How a server starts, after all checks."""

    options: ServerOptions
    origins: SiteOrigins
    secure: bool
    """Whether browsers see TLS."""
    prints_link: bool
    redaction: Redaction | None
    sinks: "Sequence[Sink]" = ()

    @property
    def url(self) -> str:
        """The address for people."""
        if self.origins.public is not None:
            return self.origins.public
        host = self.options.host
        return f"{self.origins.scheme}://{f'[{host}]' if ':' in host else host}:{self.options.port}"

    def sign_in_link(self, code: str) -> str:
        """Return the link with a login code. A browser keeps the part after # to itself, so it is in no server's log."""
        return f"{self.url}/#code={code}"

    def uvicorn_options(self) -> dict[str, Any]:
        """Return the options of uvicorn that follow. Forwarded headers are read only from declared proxies."""
        options = self.options
        return {
            "host": options.host,
            "port": options.port,
            "ssl_certfile": options.tls_cert,
            "ssl_keyfile": options.tls_key,
            "proxy_headers": bool(options.behind_proxy),
            "forwarded_allow_ips": list(options.behind_proxy),
            "server_header": False,
            "ws": "none",
        }


def read_options(given: Mapping[str, Any]) -> ServerOptions:
    """Return options from a table of settings. Raise ValidationError for unknown names and wrong types."""
    try:
        return msgspec.convert(dict(given), ServerOptions, strict=True, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        named = f"server.{field}" if field else "server"
        raise ValidationError(f"{named}: {text[0].lower()}{text[1:]}", field=field or "server") from None


def check_start(options: ServerOptions, *, has_tokens: bool, sinks: "Sequence[Sink]" = ()) -> StartPlan:
    """Check everything that a server needs to start. Raise ValidationError with the option that is wrong.

    `has_tokens` says that the ledger has a valid token that is not a server's own (`ledger.has_tokens`). `sinks` are those of the
    app that the options name.
    """
    _check_address(options)
    _check_limits(options.limits)
    _check_kept(options)
    public = _check_public_url(options)
    _check_proxies(options)
    _check_tls(options)
    is_public = not is_loopback(options.host) or bool(options.behind_proxy) or public is not None
    has_tls = options.tls_cert is not None
    if is_public and not has_tokens and options.oidc is None:
        _refuse(
            "host",
            f"others can reach {options.host}, and no credentials are configured",
            "Create a token first: holdfast token new --role admin --name YOUR_NAME. Or listen on 127.0.0.1.",
        )
    if is_public and options.oidc is not None and public is None:
        _refuse(
            "public_url",
            "an identity provider sends browsers back to the address that they use, and it is not known",
            "Give --public-url https://…, or listen on 127.0.0.1.",
        )
    if is_public and not (has_tls or options.behind_proxy):
        _refuse(
            "tls_cert",
            f"others can reach {options.host}, and tokens would be sent without encryption",
            "Give --tls-cert and --tls-key, or declare the proxy that has them: --behind-proxy ADDRESS. Or listen on 127.0.0.1.",
        )
    secure = has_tls or bool(options.behind_proxy)
    hosts = AllowedHosts(options.host, [*options.allowed_hosts, *([] if public is None else [public.partition("://")[2]])])
    origins = SiteOrigins(hosts, "https" if secure else "http", public, check_origins(options.allow_origins))
    prints_link = options.link if options.link is not None else not is_public and not has_tokens
    redaction = Redaction(options.redact) if options.redact else None
    return StartPlan(options, origins, secure, prints_link, redaction, [*make_sinks(options.sinks, read_secret), *sinks])


def read_secret(field: str, path: Path) -> str:
    """Return a secret from a file that only its owner may read. Raise ValidationError if it is one of the documentation's."""
    try:
        text = read_regular(path, SECRET_BYTES_MAX, forbidden_mode=_OTHERS_MAY).decode().strip()
    except OSError as error:
        _refuse(field, f"the file {path} cannot be used: {error.strerror}", "Let only the server's user read it: chmod 600.")
    except UnicodeDecodeError:
        _refuse(field, f"the file {path} is not a text", "Write the secret into it.")
    if text.lower() in EXAMPLE_SECRETS or len(text) < SECRET_CHARACTERS_MIN:
        _refuse(field, f"the secret in {path} is an example, or too short", "Use one that was drawn at random.")
    return text


def _check_address(options: ServerOptions) -> None:
    if not 1 <= options.processes <= PROCESSES_MAX:
        _refuse("processes", f"processes must be from 1 to {PROCESSES_MAX}", "Use one for each core.")
    if not 0 <= options.port <= PORT_MAX:
        _refuse("port", f"port must be from 0 to {PORT_MAX}", "Use a free port, such as 8470.")
    for name in options.allowed_hosts:
        if parse_host_and_port(name) is None:
            _refuse("allowed_hosts", f"{name!r:.80} is not HOST or HOST:PORT", "Name a host, such as jobs.example.org.")
    host = f"[{options.host}]" if ":" in options.host else options.host
    parsed = parse_host_and_port(host)
    if parsed is None or parsed[1] is not None:
        _refuse("host", f"{options.host!r:.80} is not an address to listen on", "Use an address, such as 127.0.0.1 or ::1.")


def _check_limits(given: ServerLimits) -> None:
    for name in given.__struct_fields__:
        if not getattr(given, name) > 0:
            _refuse(f"limits.{name}", f"limits.{name} must be above 0", "A limit cannot be switched off; raise it.")


def _check_kept(options: ServerOptions) -> None:
    for name in ("keep_jobs", "keep_failed", "keep_beats"):
        kept = getattr(options, name)
        if kept not in (None, "never"):
            policies.duration_ms(name, kept, 0, KEEP_MS_MAX)


def _check_public_url(options: ServerOptions) -> str | None:
    """Return the origin of the public URL."""
    if options.public_url is None:
        if options.behind_proxy:
            _refuse("public_url", "a server behind a proxy needs the address that clients use", "Give --public-url https://….")
        return None
    scheme, _, host = options.public_url.removesuffix("/").partition("://")
    if scheme != "https" or parse_host_and_port(host) is None:
        _refuse("public_url", "public_url must be https://HOST or https://HOST:PORT", "Use the address that clients use.")
    return f"https://{host.lower()}"


def _check_proxies(options: ServerOptions) -> None:
    for text in options.behind_proxy:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            _refuse("behind_proxy", f"{text!r:.80} is not an address or a network", "Use one such as 10.0.0.7 or 10.0.0.0/24.")
        if network.prefixlen == 0:
            _refuse("behind_proxy", f"{text} is every address, so that every client would be trusted", "Name the proxy only.")


def _check_tls(options: ServerOptions) -> None:
    """Check that the certificate and its key belong together, and that only the owner may read the key."""
    if options.tls_cert is None and options.tls_key is None:
        return
    if options.tls_cert is None or options.tls_key is None:
        missing = "tls_cert" if options.tls_cert is None else "tls_key"
        _refuse(missing, "a certificate and its key go together", "Give both --tls-cert and --tls-key.")
    try:
        read_regular(options.tls_key, limits.TLS_FILE_BYTES_MAX, forbidden_mode=_OTHERS_MAY)
    except OSError as error:
        action = "Let only the server's user read it: chmod 600."
        _refuse("tls_key", f"the key file {options.tls_key} cannot be used: {error.strerror}", action)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        reason = reason or "it is not a certificate with this key, both in PEM and not encrypted"
        _refuse("tls_cert", f"the certificate {options.tls_cert} cannot be used: {reason}", "Check both files.")


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _to_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"expected `str`, got `{type(value).__name__}`")


def _refuse(field: str, message: str, action: str) -> NoReturn:
    raise ValidationError(message, action=action, field=field)
