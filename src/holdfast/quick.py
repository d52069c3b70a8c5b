"""`holdfast task heartbeat` on SQLite, for the everyday case: what the command line does, without most of what it reads for that.

An agent beats from the command line all day, and starting Python takes longer than the beat itself: so nothing is imported here
that one plain beat does not need. Like the hot statements, this is a compiled form of `decide`. Its guards are those of an
everyday beat, and whatever does not match them (an odd option, a repeated request, a lease that is over, a policy that wants
signatures) is left to the command line before anything is changed. A test holds the two against each other.
"""

import contextlib
import fcntl
import json
import os
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from holdfast.store.statements import named

_OPTIONS = ("--id", "--agent", "--request-id", "--session", "--attempt", "--stage", "--progress", "--db")
_NAME_MAX, _KEY_MAX, _DIGITS_MAX = 200, 500, 15
_HOME = Path(__file__).parent / "store" / "sqlite"
_WAL_PAGES = 256
"""The log is copied into the database this often: nobody else may be there to keep it short, and each process reads all of it."""
_TIMES = {"claimed_at": "claimed_at", "claim_expires_at": "lease_expires_at", "last_heartbeat_at": "last_beat_at"}


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
        return blake2b(_encode(body).encode(), digest_size=16).digest()

    @property
    def payload(self) -> bytes | None:
        told = {"stage": self.stage, "progress": self.progress}
        there = {name: value for name, value in told.items() if value is not None}
        return _encode(there).encode() if there else None


def beat(arguments: list[str]) -> str | None:
    """What to print once the beat is recorded; None where nothing was done and the command line must see to it."""
    try:
        asked = _asked(arguments)
        task = _recorded(asked)
    except (NotPlain, OSError, apsw.Error):
        return None
    if asked.as_json:
        return _encode({"schema_version": "v1", "success": True, "data": {"task": task}}) + "\n"
    wish = " Somebody wants it cancelled: make your safe exit, and release it." if task["cancel_requested"] else ""
    until = (task["claim_expires_at"].rstrip("Z") + ".000")[:23]
    return f"Task {asked.id} is {asked.agent}'s until {until}Z.{wish}\n"


def _encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# What was typed


def _asked(arguments: list[str]) -> Asked:
    given, as_json = _parsed(arguments)
    if "--id" not in given:
        raise NotPlain
    return Asked(
        _path(given.get("--db") or os.environ.get("HOLDFAST_URL")),
        _plain(given.get("--agent") or os.environ.get("HOLDFAST_AGENT"), _NAME_MAX),
        _plain(given.get("--session") or os.environ.get("HOLDFAST_SESSION") or "agent", _NAME_MAX),
        _plain(given.get("--request-id"), _KEY_MAX),
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
        name, equals, value = word.partition("=")
        if name not in _OPTIONS or name in given:
            raise NotPlain
        given[name] = value if equals else next(left, "")
    return given, as_json


def _path(url: str | None) -> str:
    """A settings file, a server, or an address with escapes in it is not for here, nor is whoever means to sign."""
    if os.environ.get("HOLDFAST_KEYS") or (not url and Path("holdfast.toml").exists()):
        raise NotPlain
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


# What is written


def _recorded(asked: Asked) -> dict[str, Any]:
    """The beat and its kept answer, in one transaction. A connection this short leaves the log as it is when it closes."""
    lock = os.open(f"{asked.path}-lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        with contextlib.closing(apsw.Connection(asked.path, flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(10_000)
            connection.pragma("synchronous", "FULL")
            connection.pragma("wal_autocheckpoint", _WAL_PAGES)
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection.execute("BEGIN IMMEDIATE")
            task = _in_transaction(connection, asked)
            connection.execute("COMMIT")
    finally:
        os.close(lock)
    with contextlib.suppress(OSError), Path(f"{asked.path}-tail").open("r+b") as bell:
        bell.write(b"!")
    return task


def _in_transaction(connection: apsw.Connection, asked: Asked) -> dict[str, Any]:
    known = max(int(file.name[:4]) for file in (_HOME / "migrations").glob("*.sql"))
    if connection.execute("SELECT max(version) FROM holdfast_schema").get != known:
        raise NotPlain
    sql = named([_HOME / "sql" / "hot.sql", _HOME / "sql" / "cold.sql"])
    keys = _encode([[asked.agent, asked.request_id]])
    guard = connection.execute(sql["guards"], (_encode([asked.id]),)).fetchone()
    if guard is None or connection.execute(sql["find_requests"], {"keys": keys}).fetchone() is not None:
        raise NotPlain
    _, status, rev, attempt, token, updated_at, lease_at, owner, incarnation, _, lease_us = guard
    now = max(time.time_ns() // 1_000, updated_at)
    everyday = status in ("claimed", "running") and now <= lease_at and "+" not in (token or "+")
    if not everyday or (owner, incarnation) != (asked.agent, asked.session) or asked.attempt not in (None, attempt):
        raise NotPlain
    change = (asked.id, rev + 1, now, now + lease_us)
    if asked.payload is None:
        connection.execute(sql["beat"], change)
    else:
        connection.execute(sql["heartbeat"], (*change, asked.stage, asked.progress, None))
    event = (*change[:3], f"worker:{owner}#{incarnation}", attempt, status, status, asked.request_id, asked.payload)
    connection.execute(sql["insert_heartbeat"], event)
    task = _task(connection.execute(sql["load"], {"ids": _encode([asked.id])}))
    kept = {"actor": asked.agent, "request_id": asked.request_id, "verb": "task_heartbeat", "body_hash": asked.body_hash}
    connection.execute(sql["keep_request"], {**kept, "answer": _encode(task).encode(), "now_at": now})
    return task


def _task(loaded: apsw.Cursor) -> dict[str, Any]:
    """A task, as agents are shown one."""
    names = [column[0] for column in loaded.get_description()]
    row = dict(zip(names, loaded.fetchone() or (), strict=True))
    as_is = ("id", "kind", "queue", "status", "phase", "priority", "attempt", "rev")
    return {
        **{name: row[name] for name in as_is},
        "claimed_by": row["owner"],
        "session": row["incarnation"],
        **{name: _moment(row[column]) for name, column in _TIMES.items()},
        **{name: _moment(row[name]) for name in ("started_at", "finished_at", "available_at", "created_at")},
        "stage": row["stage"],
        "progress": row["progress"],
        "cancel_requested": row["phase"] == "aborting",
        "last_owner": row["last_owner"],
        "stall_reason": row["stall_reason"],
    }


def _moment(at: int | None) -> str | None:
    if at is None:
        return None
    seconds, micros = divmod(at, 1_000_000)
    rest = f".{micros:06}" if micros else ""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}{rest}Z"
