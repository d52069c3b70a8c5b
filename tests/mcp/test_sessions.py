"""Sessions that clients do not share, and repeated requests. With the official client, on both stores."""

from itertools import count
from typing import Any

import pytest

from holdfast.ledger import Ledger
from holdfast.mcp.sessions import SessionKey
from holdfast.testing import ManualClock
from tests.mcp.conftest import ENDS, new_sessions, text_of, tool_client

pytestmark = pytest.mark.anyio

S1 = SessionKey("ada", "s1")


async def test_a_client_of_a_transport_without_sessions_may_name_one(ledger: Ledger) -> None:
    """Nothing is claimed without a session. Otherwise a model that forgets its session would claim one job after the other."""
    sessions, numbers, job = new_sessions(ledger), count(1), ledger.enqueue("draft").id
    async with tool_client(sessions, session=None, drawn=numbers) as ada:
        found: dict[str, Any] = {}
        for tool, more in (("resume", {}), ("claim_job", {"id": job}), ("complete", {"id": job}), ("list_jobs", {"mine": True})):
            found = await ada.refused(tool, **more)
            assert (found["error_code"], found["error_context"]["field"]) == ("validation_error", "session")
            assert f"session {found['error_context']['offered']!r}" in found["suggested_action"]
        assert ledger.get(job).status == "queued"
        assert (await ada("list_jobs"))["tasks"] and (await ada("get_job", id=job)) and (await ada("enqueue", kind="draft"))
        mine = found["error_context"]["offered"]
        assert (await ada("resume", session=mine))["task"]["id"] == job
        assert (await ada("resume", session=mine))["task"]["id"] == job
        assert (await ada.refused("complete", id=job))["error_code"] == "validation_error"
        assert (await ada.refused("complete", id=job, session="other"))["error_code"] == "fence_lost"
        assert (await ada("complete", id=job, session=mine))["task"]["status"] == "succeeded"


async def test_a_client_of_a_transport_with_sessions_cannot_name_another(ledger: Ledger) -> None:
    sessions, job = new_sessions(ledger), ledger.enqueue("draft").id
    async with tool_client(sessions) as ada, tool_client(sessions, session="s2") as twin:
        held = (await ada("claim_job", id=job))["task"]
        for tool in ("complete", "release", "heartbeat"):
            found = await twin.refused(tool, id=job, session=held["session"])
            assert (found["error_code"], found["error_context"]["field"]) == ("validation_error", "session")
        assert (await twin.refused("resume", session=held["session"]))["error_code"] == "validation_error"
        assert (await ada("complete", id=job, session=held["session"]))["task"]["status"] == "succeeded"


async def test_a_repeated_request_counts_once_and_two_sessions_may_use_one_id(ledger: Ledger) -> None:
    sessions = new_sessions(ledger)
    async with tool_client(sessions) as ada, tool_client(sessions, session="s2") as twin:
        first = await ada("enqueue", kind="draft", request_id="r1")
        assert (await ada("enqueue", kind="draft", request_id="r1"))["task"] == first["task"]
        assert (await twin("enqueue", kind="draft", request_id="r1"))["task"]["id"] != first["task"]["id"]
        taken = await ada("resume", request_id="r2")
        assert await ada("resume", request_id="r2") == {**taken, "replayed": True}
        assert (await twin("resume", request_id="r2"))["task"]["id"] != taken["task"]["id"]


async def test_request_ids_need_a_session_and_are_not_mixed_up(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger), session=None) as ask:
        assert (await ask.refused("enqueue", kind="draft", request_id="1"))["error_context"]["field"] == "session"
        one = await ask("enqueue", kind="draft", session="a:b", request_id="c")
        two = await ask("enqueue", kind="draft", session="a", request_id="b:c")
        assert one["task"]["id"] != two["task"]["id"]


@pytest.mark.parametrize("tool", ENDS)
async def test_a_completion_that_is_sent_twice_counts_once(ledger: Ledger, tool: str) -> None:
    job, more = ledger.enqueue("draft").id, ENDS[tool]
    async with tool_client(new_sessions(ledger)) as ask:
        await ask("claim_job", id=job)
        first = await ask(tool, id=job, request_id="r1", **more)
        assert (await ask(tool, id=job, request_id="r1", **more))["task"] == {**first["task"], "replayed": True}
    async with tool_client(new_sessions(ledger)) as later:
        assert (await later(tool, id=job, request_id="r1", **more))["task"]["replayed"]


async def test_a_repeated_answer_does_not_change_the_state_of_the_session(ledger: Ledger, clock: ManualClock) -> None:
    sessions, job = new_sessions(ledger), ledger.enqueue("draft").id
    async with tool_client(sessions) as ask:
        await ask("resume", request_id="r1")
        await ask("progress", id=job, progress=1, request_id="p1")
        await ask("fail", id=job, error="no route")
        clock.advance(3_600)
        assert (await ask("claim_job", id=job))["task"]["attempt"] == 2
        answer = await ask.ask("progress", id=job, progress=1, request_id="p1")
        assert "This is the answer to an earlier request" in text_of(answer)
        assert sessions.attempt(S1, job) == 2
        await ask("complete", id=job)
        assert (await ask("resume", request_id="r1"))["replayed"]
        assert sessions.attempt(S1, job) is None
    async with tool_client(other := new_sessions(ledger)) as restarted:
        job = ledger.enqueue("draft").id
        await restarted("claim_job", id=job, request_id="c1")
        other.drop(S1, job)
        assert (await restarted("claim_job", id=job, request_id="c1"))["task"]["replayed"]
        assert other.attempt(S1, job) == 1
