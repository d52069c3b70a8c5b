"""Tokens, browser sessions and login codes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import Micros
from holdfast.store.statement_session import StatementSession

_encode = msgspec.json.Encoder().encode


class TokenRow(NamedTuple):
    """A token, and the ledger's time at which it was read."""

    id: str
    hash: bytes
    role: str
    name: str
    queues: str
    """A JSON list of patterns, like `act_as`."""
    act_as: str
    created_at: Micros
    created_by: str
    expires_at: Micros | None
    last_used_at: Micros | None
    revoked_at: Micros | None
    revoked_by: str | None
    now: Micros


class SessionRow(NamedTuple):
    """A browser session, and the ledger's time at which it was read."""

    token_id: str | None
    role: str
    name: str
    queues: str
    act_as: str
    created_at: Micros
    seen_at: Micros
    expires_at: Micros
    revoked_at: Micros | None
    """When its token was revoked."""
    token_expires_at: Micros | None
    now: Micros


class LoginCodeRow(NamedTuple):
    token_id: str
    expires_at: Micros


class NewSessionRow(NamedTuple):
    """A session to be stored."""

    hash: bytes
    token_id: str | None
    role: str
    name: str
    queues: str
    act_as: str
    created_at: Micros
    expires_at: Micros


def encode_patterns(patterns: Sequence[str]) -> str:
    return _encode(patterns).decode()


class SqlAccess(StatementSession):
    def add_token(self, row: TokenRow) -> None:
        stored: dict[str, Any] = row._asdict()
        for name in ("last_used_at", "revoked_at", "revoked_by", "now"):
            del stored[name]
        self.rows("add_token", **stored)

    def find_token(self, id_: str) -> TokenRow | None:
        return self.record(TokenRow, "find_token", id=id_, now_at=self.stamp())

    def tokens(self, after: str, limit: int) -> list[TokenRow]:
        """Return tokens by id, after an id."""
        return self.records(TokenRow, "tokens", after=after, limit=limit, now_at=self.stamp())

    def generated_token(self, created_by: str) -> str | None:
        """Return the id of the oldest valid token that this actor created."""
        found: str | None = self.value("generated_token", created_by=created_by, now_at=self.stamp())
        return found

    def has_tokens(self, except_by: str) -> bool:
        """Return whether there is a valid token that another actor created."""
        return bool(self.value("has_tokens", created_by=except_by, now_at=self.stamp()))

    def revoke_token(self, id_: str, by: str) -> TokenRow | None:
        return self.record(TokenRow, "revoke_token", id=id_, revoked_by=by, now_at=self.stamp())

    def touch_token(self, id_: str, at: Micros, due_at: Micros) -> None:
        """Record the use of a token, unless one after `due_at` is recorded."""
        self.rows("touch_token", id=id_, used_at=at, due_at=due_at)

    def add_session(self, row: NewSessionRow, most: int) -> None:
        """Store a session. Its owner has at most `most` then: those used least recently are ended."""
        self.rows("end_old_sessions", name=row.name, token_id=row.token_id, limit=most - 1)
        self.rows("add_session", **row._asdict())

    def find_session(self, hash_: bytes) -> SessionRow | None:
        return self.record(SessionRow, "find_session", hash=hash_, now_at=self.stamp())

    def touch_session(self, hash_: bytes, at: Micros, expires_at: Micros) -> None:
        self.rows("touch_session", hash=hash_, seen_at=at, expires_at=expires_at)

    def end_session(self, hash_: bytes) -> None:
        self.rows("end_session", hash=hash_)

    def prune_sessions(self, before: Micros, limit: int) -> int:
        """Delete sessions and login codes that expired before a time. Return how many."""
        sessions = self.rows("prune_sessions", before_at=before, limit=limit)
        return len(sessions) + len(self.rows("prune_login_codes", before_at=before, limit=limit))

    def add_login_code(self, hash_: bytes, token_id: str, expires_at: Micros) -> None:
        self.rows("add_login_code", hash=hash_, token_id=token_id, expires_at=expires_at)

    def take_login_code(self, hash_: bytes) -> LoginCodeRow | None:
        """Delete a login code and return it. Of two transactions, one gets it."""
        return self.record(LoginCodeRow, "take_login_code", hash=hash_)
