"""One client cannot take all sessions of a server. Over HTTP, tests/server/test_mcp.py tells the same with real clients."""

import pytest

from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.mcp.access import TransportSessions
from holdfast.mcp.sessions import ClientSessions, SessionKey, TooManySessions


def test_a_session_that_is_idle_too_long_frees_its_place() -> None:
    now = 0.0
    sessions = TransportSessions(1, 10.0, lambda: now)
    assert sessions.has_capacity(0)
    sessions.begin(None, 0)
    assert not sessions.has_capacity(0)
    sessions.done(None, 0, "secret")
    sessions.begin("secret", 0)
    now = 100.0
    assert not sessions.has_capacity(0)  # a request is under way
    assert sessions.has_capacity(1)
    sessions.done("secret", 0, None)
    now = 111.0
    assert sessions.has_capacity(0)
    assert not sessions.belongs_to_another("secret", 1)


def test_sessions_with_held_tasks_are_limited_for_each_client(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_SESSIONS_MAX", 4)
    sessions = ClientSessions(ledger, lambda: 0.0, of_one_max=2)

    def hold(session: str, client: int) -> None:
        place = SessionKey("ada", session)
        sessions.check_capacity(place, None, client=client)
        sessions.track(sessions.agent(place), sessions.agent(place).start(ledger.enqueue("draft").id), client=client)

    hold("a", 0)
    hold("b", 0)
    with pytest.raises(TooManySessions, match="at most 2 sessions"):
        hold("c", 0)
    hold("c", 1)
    hold("d", 2)
    with pytest.raises(TooManySessions):
        hold("e", 3)
