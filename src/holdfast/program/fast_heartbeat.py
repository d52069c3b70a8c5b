"""The fast path of `holdfast task heartbeat` on SQLite.

Agents run this command all day, and starting Python takes longer than the heartbeat itself, so this module imports only what a
plain heartbeat needs. Like the hot statements, it is a compiled form of `decide`. Its guards are those of an ordinary heartbeat.
Anything else (another option, a repeated request, an expired lease, a policy that wants signatures) is left to the command line
before anything is changed. A test compares the two.
"""

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from holdfast.files.settings import SettingsError, read_settings
from holdfast.store.statements import read_statements

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL first, which takes a twelfth of a heartbeat
except ImportError:
    from hashlib import blake2b

_OPTIONS = ("--id", "--agent", "--request-id", "--session", "--attempt", "--stage", "--progress", "--db")
_NAME_MAX, _KEY_MAX, _DIGITS_MAX = 200, 500, 15


class NotFastPath(Exception):
    """The fast path cannot handle the request. Nothing has been changed; the command line runs it."""


class HeartbeatRequest(NamedTuple):
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
        fields = {"stage": self.stage, "progress": self.progress}
        given = {name: value for name, value in fields.items() if value is not None}
        return encode(given).encode() if given else None


def encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def parse_request(arguments: list[str]) -> HeartbeatRequest:
    given, as_json = _parse_options(arguments)
    settings = _read_settings()
    if "--id" not in given:
        raise NotFastPath
    return HeartbeatRequest(
        _sqlite_path(given.get("--db") or os.environ.get("HOLDFAST_URL") or settings.get("url")),
        _check_text(given.get("--agent") or os.environ.get("HOLDFAST_AGENT") or settings.get("agent"), _NAME_MAX),
        _check_text(given.get("--session") or os.environ.get("HOLDFAST_SESSION") or settings.get("session", "agent"), _NAME_MAX),
        _check_text(given.get("--request-id") or os.urandom(8).hex(), _KEY_MAX),
        _parse_number(given["--id"]),
        _parse_number(given["--attempt"]) if "--attempt" in given else None,
        _check_text(given["--stage"], _NAME_MAX) if "--stage" in given else None,
        _parse_number(given["--progress"]) if "--progress" in given else None,
        as_json,
    )


def _parse_options(arguments: list[str]) -> tuple[dict[str, str], bool]:
    given: dict[str, str] = {}
    as_json, left = False, iter(arguments)
    for word in left:
        if word == "--json":
            as_json = True
            continue
        name, equals, value = ("--id", "=", word) if word.isdigit() else word.partition("=")
        if name not in _OPTIONS or name in given:
            raise NotFastPath
        given[name] = value if equals else next(left, "")
        if not given[name]:
            raise NotFastPath
    return given, as_json


def _read_settings() -> dict[str, Any]:
    """Return the settings of the current folder. Leave invalid settings, and any that name keys, to the command line."""
    try:
        found = read_settings()
    except SettingsError:
        raise NotFastPath from None
    if found.get("keys") or os.environ.get("HOLDFAST_KEYS"):
        raise NotFastPath
    return found


def _sqlite_path(url: str | None) -> str:
    """Return the path of a SQLite url. Leave servers, and urls with escapes, to the command line."""
    address = url or "sqlite:///holdfast.db"
    path = address.removeprefix("sqlite:///")
    if path == address or any(mark in path for mark in "?%\0"):
        raise NotFastPath
    return path


def _check_text(value: str | None, length_max: int) -> str:
    """Return a text that passes every validation and needs no escapes in JSON. Leave others to the command line."""
    if not value or len(value) > length_max or not value.isascii() or not value.isprintable() or value != value.strip():
        raise NotFastPath
    if any(mark in value for mark in '"\\#'):
        raise NotFastPath
    return value


def _parse_number(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
        raise NotFastPath
    return int(value)


_STORE_FOLDER = Path(__file__).parents[1] / "store" / "sqlite"
_WAL_PAGES = 256
"""Checkpoint when the log has this many pages. Every process reads the whole log, and no other process may keep it short."""
_BUSY_MS = 1_000
"""How long to wait for the write lock, and for the database's own lock. The command line waits longer."""
_TRY_SECONDS = 0.002
_TIMES = {"claimed_at": "claimed_at", "claim_expires_at": "lease_expires_at", "last_heartbeat_at": "last_beat_at"}


def record_heartbeat(request: HeartbeatRequest) -> dict[str, Any]:
    """Record the heartbeat and its answer in one transaction, and return the task.

    The connection is short-lived, so it does not checkpoint the log when it closes.
    """
    lock = os.open(f"{request.path}-lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        with contextlib.closing(apsw.Connection(request.path, flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(_BUSY_MS)
            connection.pragma("synchronous", "FULL")
            connection.pragma("wal_autocheckpoint", _WAL_PAGES)
            _lock(lock)
            connection.execute("BEGIN IMMEDIATE")
            task = _write_heartbeat(connection, request)
            connection.execute("COMMIT")
    finally:
        os.close(lock)
    with contextlib.suppress(OSError), Path(f"{request.path}-tail").open("r+b") as wake_up:
        wake_up.write(b"!")
    return task


def _lock(fd: int) -> None:
    """Take the write lock. After the timeout, leave the request to the command line, which waits for its turn."""
    deadline = time.monotonic() + _BUSY_MS / 1_000
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NotFastPath from None
            time.sleep(_TRY_SECONDS)


def _write_heartbeat(connection: apsw.Connection, request: HeartbeatRequest) -> dict[str, Any]:
    newest = max(int(file.name[:4]) for file in (_STORE_FOLDER / "migrations").glob("*.sql"))
    if connection.execute("SELECT max(version) FROM holdfast_schema").get != newest:
        raise NotFastPath
    sql = read_statements(_STORE_FOLDER, ("hot.sql", "cold.sql", "parts.sql", "requests.sql"))
    keys = encode([[request.agent, request.request_id]])
    guard = _row(connection.execute(sql["guards"], (encode([request.id]),)))
    if connection.execute(sql["find_requests"], {"keys": keys}).fetchone() is not None:
        raise NotFastPath
    status, attempt, holder = guard["status"], guard["attempt"], (guard["owner"], guard["incarnation"])
    now = max(time.time_ns() // 1_000, guard["updated_at"])
    is_plain = status in ("claimed", "running") and now <= guard["lease_expires_at"] and "+" not in (guard["token"] or "+")
    if not is_plain or holder != (request.agent, request.session) or request.attempt not in (None, attempt):
        raise NotFastPath
    pos = connection.execute(sql["last_pos"]).get + 1
    connection.execute(sql["set_last_pos"], (pos,))
    change = (request.id, guard["rev"] + 1, now, now + guard["lease_us"], pos)
    if request.payload is None:
        connection.execute(sql["beat"], change)
    else:
        connection.execute(sql["heartbeat"], (*change, request.stage, request.progress, None))
    actor = f"worker:{request.agent}#{request.session}"
    event = (*change[:3], guard["claim_pos"], actor, attempt, status, status, request.request_id, request.payload)
    connection.execute(sql["insert_heartbeat"], (pos, *event))
    task = _task_fields(_row(connection.execute(sql["load"], {"ids": encode([request.id])})))
    kept = {"actor": request.agent, "request_id": request.request_id, "verb": "task_heartbeat", "body_hash": request.body_hash}
    connection.execute(sql["keep_request"], {**kept, "answer": encode(task).encode(), "now_at": now})
    return task


def _row(cursor: apsw.Cursor) -> dict[str, Any]:
    """Return the only row, by column name."""
    row = cursor.fetchone()
    if row is None:
        raise NotFastPath
    return dict(zip([column[0] for column in cursor.get_description()], row, strict=True))


def _task_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return the task in the form that agents see."""
    as_is = ("id", "kind", "queue", "status", "phase", "priority", "attempt", "rev")
    return {
        **{name: row[name] for name in as_is},
        "claimed_by": row["owner"],
        "session": row["incarnation"],
        **{name: _format_time(row[column]) for name, column in _TIMES.items()},
        **{name: _format_time(row[name]) for name in ("started_at", "finished_at", "available_at", "created_at")},
        "stage": row["stage"],
        "progress": row["progress"],
        "cancel_requested": row["phase"] == "aborting",
        "last_owner": row["last_owner"],
        "stall_reason": row["stall_reason"],
    }


def _format_time(at: int | None) -> str | None:
    if at is None:
        return None
    seconds, micros = divmod(at, 1_000_000)
    rest = f".{micros:06}" if micros else ""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}{rest}Z"


def try_heartbeat(arguments: list[str]) -> str | None:
    """Record the heartbeat and return the text to print, or return None if nothing was done and the command line has to run."""
    try:
        request = parse_request(arguments)
        task = record_heartbeat(request)
    except (NotFastPath, OSError, apsw.Error):
        return None
    if request.as_json:
        return encode({"schema_version": "v1", "success": True, "data": {"task": task}, "request_id": request.request_id}) + "\n"
    cancel = " Cancellation is requested: stop, and release it." if task["cancel_requested"] else ""
    until = (task["claim_expires_at"].rstrip("Z") + ".000")[:23]
    return f"Task {request.id} is {request.agent}'s until {until}Z.{cancel}\n"
