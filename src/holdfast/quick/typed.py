"""What was typed after `holdfast task heartbeat`, where it is an everyday beat."""

import json
import os
from hashlib import blake2b
from typing import Any, NamedTuple

from holdfast.settings import WrongSettings, read

_OPTIONS = ("--id", "--agent", "--request-id", "--session", "--attempt", "--stage", "--progress", "--db")
_NAME_MAX, _KEY_MAX, _DIGITS_MAX = 200, 500, 15


class NotPlain(Exception):
    """Something for the command line."""


class Asked(NamedTuple):
    path: str
    agent: str
    session: str
    request_id: str
    id: int
    attempt: int | None
    stage: str | None
    progress: int | None
    as_json: bool

    @property
    def body_hash(self) -> bytes:
        body = ["task_heartbeat", self.session, self.id, self.attempt, self.stage, self.progress, None]
        return blake2b(encode(body).encode(), digest_size=16).digest()

    @property
    def payload(self) -> bytes | None:
        told = {"stage": self.stage, "progress": self.progress}
        there = {name: value for name, value in told.items() if value is not None}
        return encode(there).encode() if there else None


def encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def asked(arguments: list[str]) -> Asked:
    given, as_json = _parsed(arguments)
    settings = _settings()
    if "--id" not in given:
        raise NotPlain
    return Asked(
        _path(given.get("--db") or os.environ.get("HOLDFAST_URL") or settings.get("url")),
        _plain(given.get("--agent") or os.environ.get("HOLDFAST_AGENT") or settings.get("agent"), _NAME_MAX),
        _plain(given.get("--session") or os.environ.get("HOLDFAST_SESSION") or settings.get("session", "agent"), _NAME_MAX),
        _plain(given.get("--request-id") or os.urandom(8).hex(), _KEY_MAX),
        _number(given["--id"]),
        _number(given["--attempt"]) if "--attempt" in given else None,
        _plain(given["--stage"], _NAME_MAX) if "--stage" in given else None,
        _number(given["--progress"]) if "--progress" in given else None,
        as_json,
    )


def _parsed(arguments: list[str]) -> tuple[dict[str, str], bool]:
    given: dict[str, str] = {}
    as_json, left = False, iter(arguments)
    for word in left:
        if word == "--json":
            as_json = True
            continue
        name, equals, value = ("--id", "=", word) if word.isdigit() else word.partition("=")
        if name not in _OPTIONS or name in given:
            raise NotPlain
        given[name] = value if equals else next(left, "")
        if not given[name]:
            raise NotPlain
    return given, as_json


def _settings() -> dict[str, Any]:
    """What the folder says. One that says it wrongly, or means to sign, is not for here."""
    try:
        found = read()
    except WrongSettings:
        raise NotPlain from None
    if found.get("keys") or os.environ.get("HOLDFAST_KEYS"):
        raise NotPlain
    return found


def _path(url: str | None) -> str:
    """A server, or an address with escapes in it, is not for here."""
    address = url or "sqlite:///holdfast.db"
    path = address.removeprefix("sqlite:///")
    if path == address or any(mark in path for mark in "?%\0"):
        raise NotPlain
    return path


def _plain(value: str | None, most: int) -> str:
    """A text that every check lets pass and that is its own JSON."""
    if not value or len(value) > most or not value.isascii() or not value.isprintable() or value != value.strip():
        raise NotPlain
    if any(mark in value for mark in '"\\#'):
        raise NotPlain
    return value


def _number(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
        raise NotPlain
    return int(value)
