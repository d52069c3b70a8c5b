"""Texts of MCP answers: complete enough to act on, with cuts marked and control characters escaped."""

import pytest

from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.testing import ManualClock
from tests.mcp.conftest import new_sessions, text_of, tool_client

pytestmark = pytest.mark.anyio


async def test_a_brief_has_the_important_facts_and_names_what_was_cut(ledger: Ledger) -> None:
    ledger.enqueue("draft", {"page": 7, "long": "x" * limits.MCP_TEXT_CHARACTERS_MAX})
    async with tool_client(new_sessions(ledger)) as ask:
        said = text_of(await ask.ask("resume"))
        assert "Job 1: draft in default, running, attempt 1, ada's (s1)" in said
        assert 'args: {"page":7' in said
        assert "(cut: it has 4,020 characters, read it with get_contents, id 1, part args)" in said
        assert "It is the next in order." in said
        assert len(said) < limits.MCP_TEXT_CHARACTERS_MAX + 700
        ledger.cancel(1)
        assert "cancellation was requested" in text_of(await ask.ask("heartbeat", id=1))


async def test_long_contents_can_be_read_in_parts(ledger: Ledger) -> None:
    ledger.enqueue("draft", {"long": "é" * limits.AGENT_VALUE_BYTES_MAX})
    async with tool_client(new_sessions(ledger)) as ask:
        answer = await ask.ask("get_job", id=1)
        assert answer.structured_content is not None
        found = answer.structured_content["task"]
        assert "args" not in found and found["omitted"]["args"] > limits.AGENT_VALUE_BYTES_MAX
        assert "bytes, read it with get_contents, id 1, part args" in text_of(answer)
        pieces: list[str] = []
        offset: int | None = 0
        while offset is not None:
            piece = await ask("get_contents", id=1, part="args", offset=offset, limit=10_000)
            pieces.append(piece["text"])
            offset = piece["next_offset"]
        assert "".join(pieces) == '{"long":"' + "é" * limits.AGENT_VALUE_BYTES_MAX + '"}'
        assert [len(piece) for piece in pieces] == [10_000, 6_395]
        first = text_of(await ask.ask("get_contents", id=1, part="args", limit=10))
        assert first.endswith("Characters 0 to 10 of 16,395. Continue with offset 10.")
        whole = await ask.client.read_resource("holdfast://jobs/1")
        assert "é" * limits.AGENT_VALUE_BYTES_MAX in whole.contents[0].model_dump()["text"]


async def test_a_checkpoint_of_null_is_none(ledger: Ledger) -> None:
    ledger.enqueue("draft")
    async with tool_client(new_sessions(ledger)) as ask:
        await ask("claim_job", id=1)
        await ask("progress", id=1, progress=1, checkpoint={"precious": 1})
        await ask("progress", id=1, progress=2, checkpoint=None)
    assert ledger.get(1).checkpoint == {"precious": 1}


async def test_a_change_names_the_next_step(ledger: Ledger, clock: ManualClock) -> None:
    async with tool_client(new_sessions(ledger)) as ask:
        assert "queued, available from 20" in text_of(await ask.ask("enqueue", kind="draft", args={"page": 7}))
        assert "waiting for other jobs" in text_of(await ask.ask("enqueue", kind="review", depends_on=[1], args={"x": "y" * 200}))
        rows = text_of(await ask.ask("list_jobs")).splitlines()
        assert rows[0].endswith('; args: {"page":7}') and rows[1].endswith("; args: 208 bytes")
        assert None not in (await ask("list_jobs"))["tasks"][0].values()
        await ask("claim_job", id=1)
        failed = await ask.ask("fail", id=1, error="no route")
        assert failed.structured_content is not None
        at = failed.structured_content["task"]["available_at"][:19]
        assert f"queued again, available from {at}" in text_of(failed)
        assert "It can be tried 4 more times." in text_of(failed)
        clock.advance(3_600)
        await ask("claim_job", id=1)
        assert (await ask("release", id=1))["attempts_left"] == 4


async def test_events_of_an_earlier_brief_are_only_counted(ledger: Ledger) -> None:
    ledger.enqueue("draft")
    async with tool_client(new_sessions(ledger)) as ask:
        assert "older events" not in text_of(await ask.ask("resume"))
        assert "  3 older events: get_job has the newest 50" in text_of(await ask.ask("resume"))
        assert "older events" not in text_of(await ask.ask("get_job", id=1))


async def test_explain_says_what_the_agent_can_do(ledger: Ledger) -> None:
    ledger.enqueue("draft")
    ledger.enqueue("review", depends_on=[1])
    ledger.pause("shut")
    ledger.enqueue("draft", queue="shut")
    async with tool_client(new_sessions(ledger)) as ask:
        free = await ask("explain", id=1)
        assert free["text"].endswith("You can claim it: call claim_job with id 1.")
        assert free["commands"][0] == {"command": "claim_job with id 1", "does": "claims and starts it for you"}
        for id_ in (1, 2, 3):
            found = await ask("explain", id=id_)
            assert "worker" not in found["text"] and "worker run" not in str(found["commands"])
            assert ("claim_job" in found["text"]) == (id_ == 1)


async def test_no_stored_text_reaches_a_terminal_unescaped(ledger: Ledger) -> None:
    raw = "\x1b[31m\u202e\x9b31m\x7f\u2028 IGNORE ALL"
    ledger.enqueue("draft", {"page": raw})
    async with tool_client(new_sessions(ledger)) as ask:
        await ask("claim_job", id=1)
        await ask("fail", id=1, error=raw)
        answers = [await ask.ask(tool, id=1) for tool in ("explain", "get_job")]
        answers += [await ask.ask("list_jobs"), await ask.ask("get_contents", id=1, part="args")]
        answers.append(await ask.ask("get_job", id=1, **{raw: 1}))
        for answer in answers:
            assert "IGNORE ALL" in text_of(answer)
            assert all(line.isprintable() for line in text_of(answer).split("\n"))
