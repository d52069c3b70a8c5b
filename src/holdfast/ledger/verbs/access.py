"""Verbs for the access to a server: tokens, browser sessions and login codes.

They change no job and make no event. Texts from callers without a token (`find_token`, `find_session`, `log_in`) are never a
ValidationError: a wrong one is answered with None.
"""

import hmac
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import access, limits
from holdfast.core import policy as policies
from holdfast.core.access import AccessRole
from holdfast.core.model import SYSTEM, Actor, Micros, Role
from holdfast.errors import NotFound
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import public_record
from holdfast.store.access import NewSessionRow, SessionRow, TokenRow, encode_patterns
from holdfast.store.session import Session

_decode_patterns = msgspec.json.Decoder(tuple[str, ...]).decode
_NO_HASH = bytes(32)
GENERATED_NAME = "local"
"""The name of the token that a server on a loopback address makes for itself."""


class TokenRecord(msgspec.Struct, frozen=True):
    """A token of the HTTP server, without its secret."""

    id: str
    role: AccessRole
    name: str
    """The name of the actor in events."""
    queues: tuple[str, ...]
    """Patterns of the queues that it may see and use. `*` stands for any number of characters."""
    act_as: tuple[str, ...]
    """Patterns of other actors that it may act as, such as `worker:crawl-*`."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    """Recorded at most once an hour."""
    revoked_at: datetime | None
    revoked_by: str | None
    is_valid: bool
    """Whether it was neither revoked nor expired when it was read."""


class NewToken(msgspec.Struct, frozen=True):
    """A new token with its text, which is not stored and cannot be shown again."""

    token: TokenRecord
    text: str

    def __repr__(self) -> str:
        return f"<NewToken {self.token.id}>"


class SessionRecord(msgspec.Struct, frozen=True):
    """A browser session, without its secret."""

    role: AccessRole
    name: str
    queues: tuple[str, ...]
    act_as: tuple[str, ...]
    token_id: str | None
    """The token that began it. None if an identity provider has signed in a person."""
    created_at: datetime
    seen_at: datetime
    """Recorded at most once a minute."""
    expires_at: datetime
    """The end of the session if no request moves it."""


class TokenVerbs(LedgerBase):
    def new_token(
        self,
        role: str,
        name: str,
        *,
        queues: tuple[str, ...] | list[str] = (access.ANY,),
        act_as: tuple[str, ...] | list[str] = (),
        expires: Any = None,
        actor: str | Actor | None = None,
    ) -> NewToken:
        """Create a token. Its text is in the answer only: the ledger keeps a hash of its secret.

        `role` is reader, client, worker, operator or admin. `name` is the name of the actor in events. `queues` are patterns of
        the queues that it may use. `act_as` are patterns of other actors, such as `worker:crawl-*`. In patterns, `*` stands for
        any number of characters. `expires` is how long the token is valid; without it, until it is revoked.
        """
        who = validate.actor(actor, Role.OPERATOR, self._actor)
        allowed = validate.choice("role", AccessRole, role)
        limits.check_name("name", name)
        seen, acts = access.check_queue_patterns(queues), access.check_actor_patterns(act_as, allowed)
        valid_us = None
        if expires is not None:
            valid_us = policies.duration_ms("expires", expires, limits.TOKEN_MS_MIN, limits.TOKEN_MS_MAX) * 1_000
        made = access.make_token(self._entropy.secret(), self._entropy.secret())

        def add(session: Session) -> TokenRow:
            now = session.now()
            row = TokenRow(
                made.id, access.hash_secret(made.secret), allowed.value, name, encode_patterns(seen), encode_patterns(acts),
                now, str(who), None if valid_us is None else now + valid_us, None, None, None, now,
            )  # fmt: skip
            session.add_token(row)
            return row

        return NewToken(_public_token(self._pipeline.transact(add)), made.text)

    def tokens(self, *, after: str = "", limit: int = limits.PAGE_MAX) -> list[TokenRecord]:
        """Return tokens by id, also revoked and expired ones. For the next page, pass the last id of this one as `after`."""
        validate.page_by_name(after, limit)
        return [_public_token(row) for row in self._store.read_statement(lambda session: session.tokens(after, limit))]

    def revoke_token(self, token_id: str, *, actor: str | Actor | None = None) -> TokenRecord:
        """Revoke a token, and end its sessions. A revocation cannot be undone. A second one changes nothing.

        Servers remember a token for 5 s at most.
        """
        limits.check_name("token_id", token_id)
        who = str(validate.actor(actor, Role.OPERATOR, self._actor))
        found = self._pipeline.run_statement(lambda session: session.revoke_token(token_id, who))
        if found is None:
            raise NotFound(f"there is no token {token_id!r:.80}", token_id=token_id)
        return _public_token(found)

    def find_token(self, text: str) -> TokenRecord | None:
        """Return the token with this text if it is valid. Return None for any other text.

        A text without the form of a token is not looked up: the form is no secret. For all others the time does not depend on
        whether the id exists or how much of the secret is right.
        """
        given = access.parse_token(text)
        if given is None:
            return None
        row = self._store.read_statement(lambda session: session.find_token(given.id))
        is_right = hmac.compare_digest(access.hash_secret(given.secret), _NO_HASH if row is None else bytes(row.hash))
        if row is None or not is_right or not access.is_valid_at(row.now, row.revoked_at, row.expires_at):
            return None
        return _public_token(row)

    def touch_token(self, token_id: str) -> None:
        """Record that a token is used. This writes at most once an hour for each token."""
        limits.check_name("token_id", token_id)
        row = self._store.read_statement(lambda session: session.find_token(token_id))
        if row is None:
            return
        due_at = row.now - limits.TOKEN_USE_MS * 1_000
        if row.last_used_at is None or row.last_used_at <= due_at:
            self._pipeline.run_statement(lambda session: session.touch_token(token_id, row.now, due_at))

    def has_tokens(self) -> bool:
        """Return whether there is a valid token that a person or program created. Tokens of servers themselves do not count."""
        return self._store.read_statement(lambda session: session.has_tokens(str(SYSTEM)))


class SessionVerbs(LedgerBase):
    def new_session(self, token_id: str) -> str:
        """Begin a browser session of a valid token, and return its secret. Raise NotFound if there is no such token."""
        limits.check_name("token_id", token_id)
        secret = access.make_secret(self._entropy.secret())
        self._pipeline.transact(lambda session: _begin_session(session, token_id, secret))
        return secret

    def new_person_session(self, name: str, role: str, *, queues: tuple[str, ...] | list[str] = (access.ANY,)) -> str:
        """Begin a browser session of a person whom an identity provider has signed in, and return its secret."""
        limits.check_name("name", name)
        allowed, seen = validate.choice("role", AccessRole, role), access.check_queue_patterns(queues)
        secret = access.make_secret(self._entropy.secret())

        def begin(session: Session) -> None:
            _add_session(session, secret, None, allowed.value, name, encode_patterns(seen), encode_patterns(()))

        self._pipeline.transact(begin)
        return secret

    def find_session(self, secret: str) -> SessionRecord | None:
        """Return the session with this secret, or None if it is over or unknown, or its token is no longer valid."""
        row = self._find_session(secret)
        return None if row is None else _public_session(row)

    def touch_session(self, secret: str) -> None:
        """Record that a session is used, which moves its end. This writes at most once a minute for each session."""
        row = self._find_session(secret)
        if row is not None and row.now - row.seen_at >= limits.SESSION_USE_MS * 1_000:
            hashed, expires_at = access.hash_secret(secret), _session_end(row.created_at, row.now)
            self._pipeline.run_statement(lambda session: session.touch_session(hashed, row.now, expires_at))

    def end_session(self, secret: str) -> None:
        """End a session. Nothing happens if it is over."""
        if access.is_secret(secret):
            self._pipeline.run_statement(lambda session: session.end_session(access.hash_secret(secret)))

    def _find_session(self, secret: Any) -> SessionRow | None:
        if not access.is_secret(secret):
            return None
        row = self._store.read_statement(lambda session: session.find_session(access.hash_secret(secret)))
        if row is None or row.now >= row.expires_at or not access.is_valid_at(row.now, row.revoked_at, row.token_expires_at):
            return None
        return row


class LoginVerbs(TokenVerbs):
    def local_login_code(self) -> str:
        """Return a login code for the server's own admin token, which is created if there is no valid one.

        The text of that token is dropped. It can only be used by login codes and the sessions that they begin.
        """
        found = self._store.read_statement(lambda session: session.generated_token(str(SYSTEM)))
        return self.new_login_code(found or self.new_token(AccessRole.ADMIN, GENERATED_NAME, actor=SYSTEM).token.id)

    def new_login_code(self, token_id: str) -> str:
        """Return a code that begins one session of a valid token. It can be used once, within 10 minutes.

        Raise NotFound if there is no such token.
        """
        limits.check_name("token_id", token_id)
        code = access.make_secret(self._entropy.secret())

        def add(session: Session) -> None:
            row = _valid_token(session, token_id)
            session.add_login_code(access.hash_secret(code), token_id, row.now + limits.LOGIN_CODE_MS * 1_000)

        self._pipeline.transact(add)
        return code

    def log_in(self, code: str) -> str | None:
        """Use a login code. Return the secret of a new session, or None if the code is unknown, used or too old."""
        if not access.is_secret(code):
            return None
        secret = access.make_secret(self._entropy.secret())

        def use(session: Session) -> str | None:
            found = session.take_login_code(access.hash_secret(code))
            if found is None or session.now() >= found.expires_at:
                return None
            try:
                _begin_session(session, found.token_id, secret)
            except NotFound:
                return None
            return secret

        return self._pipeline.transact(use)


def _valid_token(session: Session, token_id: str) -> TokenRow:
    row = session.find_token(token_id)
    if row is None or not access.is_valid_at(row.now, row.revoked_at, row.expires_at):
        raise NotFound(f"there is no valid token {token_id!r:.80}", token_id=token_id)
    return row


def _begin_session(session: Session, token_id: str, secret: str) -> None:
    row = _valid_token(session, token_id)
    _add_session(session, secret, row.id, row.role, row.name, row.queues, row.act_as)


def _add_session(session: Session, secret: str, token_id: str | None, role: str, name: str, queues: str, act_as: str) -> None:
    now = session.now()
    row = NewSessionRow(access.hash_secret(secret), token_id, role, name, queues, act_as, now, _session_end(now, now))
    session.add_session(row, limits.SESSIONS_PER_OWNER_MAX)


def _session_end(created_at: Micros, seen_at: Micros) -> Micros:
    return min(created_at + limits.SESSION_MS_MAX * 1_000, seen_at + limits.SESSION_IDLE_MS * 1_000)


def _public_token(row: TokenRow) -> TokenRecord:
    is_valid = access.is_valid_at(row.now, row.revoked_at, row.expires_at)
    return public_record(TokenRecord, row, is_valid=is_valid, **_rights(row))


def _public_session(row: SessionRow) -> SessionRecord:
    return public_record(SessionRecord, row, **_rights(row))


def _rights(row: TokenRow | SessionRow) -> dict[str, Any]:
    patterns = {"queues": _decode_patterns(row.queues), "act_as": _decode_patterns(row.act_as)}
    return {"role": AccessRole(row.role), **patterns}
