"""Parse ledger urls strictly, and show them without secrets.

A url may contain a password, so no message in this file quotes any part of a url. The driver's messages do: libpq quotes what
it cannot parse, and part of a password with an @ or a / in it can be taken for a host name. Therefore a url is parsed here
first, and only an unambiguous one is passed to the driver.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

from holdfast.core.hosts import PORT_MAX, is_loopback
from holdfast.errors import ValidationError

HIDDEN = "…"
SECRET_CHARACTERS_MIN = 3
"""A shorter secret is not removed from messages, because it would match parts of ordinary words."""
SHOWN = frozenset(
    {
        "schema",
        "lanes",
        "pooled",
        "listen",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "sslmode",
        "application_name",
        "target_session_attrs",
    }
)
"""Parameters that are shown with their values. Any other may be a secret, or a misspelt password."""
QUOTED_CHARACTERS_MAX = 1_000
"""The most that a message may quote of one word of the command line."""

_SQLITE = re.compile(r"sqlite:///", re.ASCII | re.IGNORECASE)
_SERVER = re.compile(r"postgres(?:ql)?://", re.ASCII | re.IGNORECASE)
_REMOTE = re.compile(r"https?://", re.ASCII | re.IGNORECASE)
_REMOTE_PARTS = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?((?:/[A-Za-z0-9._~-]+)*)/?", re.ASCII | re.IGNORECASE
)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_CREDENTIALS = re.compile(r"([^:@/]*)(?::([^@/]*))?@")
"""User and password, found as libpq does it: up to the first @, unless a / comes before it."""
_PLACE = re.compile(r"([^/?]*)(/[^?]*)?(?:\?(.*))?", re.DOTALL)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%25[\w.~-]+)?\]|[\w.~%-]*)(?::[0-9]{0,5})?")
_SECRET_BEGINS = re.compile(r"(?<=://)[^:@/?]*:|password[^=]*=|secret=|_key=", re.IGNORECASE)
_ESCAPE_ADVICE = "in a user name or a password write % as %25, @ as %40, / as %2F, : as %3A, ? as %3F and a blank as %20"


class ServerUrl(NamedTuple):
    """The parts of a PostgreSQL url, not unescaped."""

    scheme: str
    user: str
    password: str | None
    hosts: str
    path: str
    parameters: tuple[tuple[str, str], ...]

    def text(self, parameters: Collection[tuple[str, str]]) -> str:
        """Return the url with these parameters instead of its own. The scheme is in lower case, as libpq requires."""
        credentials = "" if self.password is None else f":{self.password}"
        return self._joined(self.scheme.lower(), credentials, parameters)

    def shown(self, instead: str) -> str:
        """Return the url for display, with `instead` in the place of the password and without parameters that are secrets."""
        credentials = "" if self.password is None else instead
        return self._joined(self.scheme, credentials, [(name, value) for name, value in self.parameters if not _is_secret(name)])

    def _joined(self, scheme: str, credentials: str, parameters: Collection[tuple[str, str]]) -> str:
        login = f"{self.user}{credentials}@" if self.user or self.password is not None else ""
        query = "&".join(f"{name}={value}" for name, value in parameters)
        return f"{scheme}://{login}{self.hosts}{self.path}" + (f"?{query}" if query else "")

    def redacted(self, message: str) -> str:
        """Return `message` without the secrets of this url, escaped or not."""
        typed = [self.password or "", *(value for name, value in self.parameters if _is_secret(name))]
        shown = self.shown("")
        for secret in sorted({form for one in typed for form in (one, unquote(one))}, key=len, reverse=True):
            if len(secret) >= SECRET_CHARACTERS_MIN and secret not in shown:
                message = message.replace(secret, HIDDEN)
        return message


class RemoteUrl(NamedTuple):
    """The parts of the url of a Holdfast server."""

    scheme: str
    host: str
    port: int
    prefix: str
    """The path before `/v1`, without a slash at its end. It is empty unless a proxy serves Holdfast under a path."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_sqlite(url: str) -> bool:
    return _SQLITE.match(url) is not None


def is_server(url: str) -> bool:
    return _SERVER.match(url) is not None


def is_remote(url: str) -> bool:
    return _REMOTE.match(url) is not None


def parse_remote_url(url: str) -> RemoteUrl:
    """Return the parts of the url of a Holdfast server. The message of a refusal quotes no part of it."""
    found = _REMOTE_PARTS.fullmatch(url)
    if found is None:
        raise ValidationError(
            "the url of a server is https://host, https://host:port or https://host/path: a token is not part of it", field="url"
        )
    scheme = found[1].lower()
    port = int(found[3]) if found[3] else 443 if scheme == "https" else 80
    if not 0 < port <= PORT_MAX:
        raise ValidationError(f"a port is from 1 to {PORT_MAX}", field="url")
    return RemoteUrl(scheme, found[2].strip("[]").lower(), port, found[4])


def sqlite_file(url: str) -> str:
    """Return the file that a SQLite url names, as it is written there, or an empty text for any other url."""
    found = _SQLITE.match(url)
    return "" if found is None else url[found.end() :]


def parse_server_url(url: str) -> ServerUrl:
    """Return the parts of a PostgreSQL url. Raise ValidationError if it is ambiguous. The message quotes no part of it."""
    begin = _SERVER.match(url)
    if begin is None:
        raise ValidationError("a PostgreSQL url starts with postgresql://", field="url")
    if not url.isprintable() or " " in url:
        raise ValidationError(f"the url holds a blank or a character that cannot be printed: {_ESCAPE_ADVICE}", field="url")
    if _BAD_ESCAPE.search(url):
        raise ValidationError(f"the url holds a % that is not followed by two hexadecimal digits: {_ESCAPE_ADVICE}", field="url")
    rest = url[begin.end() :]
    found = _CREDENTIALS.match(rest)
    user, password = ("", None) if found is None else (found[1], found[2])
    place = _PLACE.fullmatch(rest if found is None else rest[found.end() :])
    assert place is not None
    hosts, path, query = place[1], place[2] or "", place[3] or ""
    if "@" in hosts + path or "?" in user or (password is not None and "@" in query):
        raise ValidationError(f"the url has an @ or a ? where none can be: {_ESCAPE_ADVICE}", field="url")
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValidationError(f"the url has a host or a port that cannot be one: {_ESCAPE_ADVICE}", field="url")
    return ServerUrl(begin[0][:-3], user, password, hosts, path, _parameters(query))


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    """Split the query. As in libpq, one & is allowed at the end, and each parameter has exactly one =."""
    parts = query.removesuffix("&").split("&") if query else []
    if any(part.count("=") != 1 for part in parts):
        raise ValidationError(
            "the parameters of a url are name=value, joined by &: in a value write & as %26 and = as %3D", field="url"
        )
    return tuple((name, value) for name, _, value in (part.partition("=") for part in parts))


def hide_password(url: str, instead: str = f":{HIDDEN}") -> str:
    """Return a url for display. Of one that cannot be parsed only the scheme is shown: the rest may be a password."""
    if is_sqlite(url):
        file, mark, _ = url.partition("?")
        return f"{file}{mark}{HIDDEN}" if mark else file
    try:
        if is_remote(url):
            parse_remote_url(url)
            return url
        return parse_server_url(url).shown(instead)
    except ValidationError:
        return f"{_scheme(url)}{HIDDEN}"


def _is_secret(name: str) -> bool:
    return unquote_plus(name) not in SHOWN


def redact_urls(message: str, words: Iterable[str]) -> str:
    """Return `message` without the urls among the `words` of a command line.

    A shell splits a url at each blank in its password. So the words after a url without an @, up to the next word with an @,
    belong to that url and are removed too.
    """
    cut: list[str] | None = None
    for word in words:
        if begin := _SERVER.search(word) or _REMOTE.search(word):
            message = _redact_url(message, word[begin.start() :])
            cut = [] if "@" not in word else None
        elif cut is not None:
            cut.append(word)
            if "@" in word:
                for piece in sorted(cut, key=len, reverse=True):
                    message = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)", HIDDEN, message)
                cut = None
    return message


def _redact_url(message: str, url: str) -> str:
    """Return `message` without `url`, also if only a prefix of it is quoted, or its repr."""
    for form in (url, repr(url)[1:-1]):
        secret = _SECRET_BEGINS.search(form)
        if secret is None:
            continue
        for end in (len(form), *range(min(len(form), QUOTED_CHARACTERS_MAX), secret.end(), -1)):
            message = message.replace(form[:end], f"{_scheme(url)}{HIDDEN}")
    return message


def _scheme(url: str) -> str:
    found = _SERVER.match(url) or _REMOTE.match(url)
    return "" if found is None else found[0]
