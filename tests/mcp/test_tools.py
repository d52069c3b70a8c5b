"""The arguments, answers and refusals of every tool. With the official client, on both stores."""

import json
from typing import Any

import jsonschema
import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS, Tool

from holdfast.cli.answer_shapes import schema_of
from holdfast.core import limits
from holdfast.errors import HoldfastError
from holdfast.ledger import Ledger
from holdfast.mcp.server import INSTRUCTIONS, SESSION_INSTRUCTIONS, agent_name
from holdfast.mcp.tools import TOOLS
from holdfast.testing import ManualClock
from tests.mcp.conftest import ToolClient, new_sessions, tool_client

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
CLI = {
    "claim_job": "task start",
    "complete": "task complete",
    "explain": "explain",
    "fail": "task fail",
    "get_job": "task get",
    "heartbeat": "task heartbeat",
    "progress": "task heartbeat",
    "release": "task release",
    "resume": "resume",
}
"""The commands with the same answer. `task list` also has fields that are null."""


TOOLS_CHARACTERS_MAX = 21_000
"""At most 6,000 tokens: these schemas have 4.1 characters a token (measured with o200k_base), other tokenizers may need more."""


class Checked(ToolClient):
    """Check every answer against the schema of the tool, and of the command with the same answer."""

    def __init__(self, found: ToolClient, tools: list[Tool]) -> None:
        super().__init__(found.client)
        self._tools = {tool.name: tool for tool in tools}
        self.asked: set[str] = set()

    async def ask(self, tool: str, **arguments: Any) -> Any:
        answer = await super().ask(tool, **arguments)
        schema = self._tools[tool].output_schema
        assert schema is not None
        jsonschema.Draft202012Validator(schema).validate(answer.structured_content)
        if not answer.is_error and tool in CLI:
            data = {name: value for name, value in answer.structured_content.items() if name != "attempts_left"}
            line = {"schema_version": "v1", "success": True, "data": data}
            jsonschema.Draft202012Validator(schema_of(CLI[tool])).validate(line)
        self.asked.add(tool)
        return answer


@MODES
async def test_every_tool_answers_in_its_form(ledger: Ledger, mode: str) -> None:
    async with tool_client(new_sessions(ledger), mode=mode) as plain:
        ask = Checked(plain, (await plain.client.list_tools()).tools)
        first = (await ask("enqueue", kind="draft", args={"page": 7, "nothing": None}, priority=5))["task"]["id"]
        waiting = (await ask("enqueue", kind="review", depends_on=[first]))["task"]["id"]
        brief = await ask("resume")
        assert (brief["task"]["id"], brief["why"], brief["task"]["args"]) == (first, "next", {"page": 7, "nothing": None})
        assert [one["id"] for one in brief["unlocks"]] == [waiting]
        moved = await ask("progress", id=first, progress=3, stage="writing", checkpoint={"lines": 40})
        assert (moved["task"]["progress"], moved["task"]["stage"]) == (3, "writing")
        beaten = await ask("heartbeat", id=first)
        assert (beaten["task"]["claimed_by"], beaten["task"]["session"], beaten["task"]["attempt"]) == ("ada", "s1", 1)
        assert [task["id"] for task in (await ask("list_jobs", mine=True))["tasks"]] == [first]
        assert [task["id"] for task in (await ask("list_jobs", phase="executing"))["tasks"]] == [first]
        assert (await ask("list_jobs", phase="assisted"))["tasks"] == []
        assert (await ask("get_job", id=first))["task"]["checkpoint"] == {"lines": 40}
        assert (await ask("get_contents", id=first, part="args"))["text"] == '{"page":7,"nothing":null}'
        assert (await ask("release", id=first, reason="out of credits"))["task"]["status"] == "queued"
        assert ledger.events(first)[-1].reason == "out of credits"
        assert (await ask("claim_job", id=first))["task"]["attempt"] == 2
        assert (await ask("complete", id=first, result={"lines": 92}))["task"]["status"] == "succeeded"
        assert (await ask("claim_job", id=waiting, ttl_s=60))["task"]["status"] == "running"
        failed = await ask("fail", id=waiting, error="no route", reason_code="timeout", failure_stage="fetch")
        assert failed["task"]["status"] == "queued"
        assert (ledger.get(waiting).reason_code, ledger.get(waiting).failure_stage) == ("timeout", "fetch")
        assert (await ask("explain", id=waiting))["situation"] == "backoff"
        assert await ask("list_jobs", status=["succeeded"], limit=1) == await ask("list_jobs", limit=1)
        assert (await ask("resume"))["why"] == "nothing"
        assert ask.asked == TOOLS.keys()
    assert ledger.get(first).result == {"lines": 92}


async def test_a_key_is_kept_after_the_end_of_its_job(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger)) as plain:
        ask = Checked(plain, (await plain.client.list_tools()).tools)
        throttled = {"kind": "draft", "dedupe_key": "once", "dedupe_for_s": 60}
        kept = ledger.cancel((await ask("enqueue", **throttled))["task"]["id"])
        again = await ask("enqueue", **throttled)
        assert (again["task"]["id"], again["is_new"]) == (kept.id, False)


async def test_an_agent_gets_jobs_that_require_its_labels(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=5)
    async with tool_client(new_sessions(ledger)) as plain:
        ask = Checked(plain, (await plain.client.list_tools()).tools)
        options = {"limits": {"api": 2}, "partition": "t", "requires": ["gpu"], "for_worker": "ada"}
        first, second = [(await ask("enqueue", kind="draft", **options))["task"]["id"] for _ in range(2)]
        made = ledger.get(first)
        assert (made.limits, made.partition, made.requires, made.for_worker) == ({"api": 2}, "t", ("gpu",), "ada")
        idle = await ask("resume")
        assert (idle["why"], idle["nothing"]["limited"]) == ("nothing", 2)
        assert (await plain.refused("claim_job", id=second))["error_code"] == "not_claimable"
        assert (await ask("resume", labels=["gpu"]))["task"]["id"] == first
        assert (await ask("claim_job", id=second, labels=["gpu", "x"]))["task"]["id"] == second


async def test_a_server_has_labels_for_all_its_agents(ledger: Ledger) -> None:
    job = ledger.enqueue("draft", requires=["gpu", "x"])
    async with tool_client(new_sessions(ledger, labels=["gpu"])) as ask:
        assert (await ask("resume", labels=["x"]))["task"]["id"] == job.id


# Refusals


async def test_refusals_say_what_to_do(ledger: Ledger, clock: ManualClock) -> None:
    sessions = new_sessions(ledger)
    job, other = ledger.enqueue("draft").id, ledger.enqueue("draft").id
    ledger.enqueue("draft", queue="paused")
    ledger.pause("paused")
    async with tool_client(sessions) as ada, tool_client(sessions, agent="bob", session="s2") as bob:
        await ada("claim_job", id=job, request_id="r1")
        cases: list[tuple[ToolClient, str, dict[str, Any], str]] = [
            (ada, "get_job", {"id": 99}, "not_found"),
            (ada, "complete", {"id": other}, "fence_lost"),
            (bob, "claim_job", {"id": job}, "lease_conflict"),
            (bob, "claim_job", {"id": 3}, "not_claimable"),
            (ada, "claim_job", {"id": other, "request_id": "r1"}, "idempotency_conflict"),
            (ada, "heartbeat", {"id": job, "attempt": 9}, "fence_lost"),
            (ada, "enqueue", {"kind": "x", "depends_on": [99]}, "not_found"),
            (ada, "fail", {"id": job, "error": "x" * 20_000}, "validation_error"),
            (ada, "fail", {"id": job, "error": "x", "reason_code": "poison"}, "validation_error"),
            (ada, "get_contents", {"id": job, "part": "result"}, "not_found"),
            (ada, "enqueue", {"kind": "é" * 150}, "limit_exceeded"),
        ]
        for who, tool, arguments, code in cases:
            assert (await who.refused(tool, **arguments))["error_code"] == code, (tool, arguments)
        await ada("complete", id=job)
        assert (await ada.refused("complete", id=job))["error_code"] == "invalid_transition"
    assert ledger.get(job).status == "succeeded"


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("get_job", {}),
    ("get_job", {"id": 0}),
    ("get_job", {"id": "1"}),
    ("get_job", {"id": 1, "more": 1}),
    ("list_jobs", {"limit": limits.MCP_PAGE_MAX + 1}),
    ("list_jobs", {"status": ["asleep"]}),
    ("list_jobs", {"phase": "asleep"}),
    ("claim_job", {"id": 1, "ttl_s": 0}),
    ("progress", {"id": 1}),
    ("fail", {"id": 1, "error": ""}),
    ("get_contents", {"id": 1, "part": "events"}),
    ("get_contents", {"id": 1, "part": "args", "limit": limits.MCP_PIECE_CHARACTERS_MAX + 1}),
    ("enqueue", {"kind": "x", "args": []}),
    ("resume", {"queues": []}),
]


async def test_arguments_are_checked_against_their_schema(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger)) as ask:
        tools = {tool.name: tool for tool in (await ask.client.list_tools()).tools}
        for tool, arguments in WRONG:
            assert not jsonschema.Draft202012Validator(tools[tool].input_schema).is_valid(arguments), (tool, arguments)
            assert (await ask.refused(tool, **arguments))["error_code"] == "validation_error", (tool, arguments)


async def test_an_argument_that_is_gone_says_what_to_use_instead(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger)) as ask:
        found = await ask.refused("enqueue", kind="k", for_worker="w", for_worker_for=5)
        assert found["suggested_action"] == "Give the job to any worker later: ledger.move(id, for_worker=None)."
        found = await ask.refused("enqueue", kind="k", colour="red")
        assert found["suggested_action"] == "Correct the request and send it again."


async def test_an_unavailable_ledger_and_an_internal_error_are_tool_answers(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tool_client(new_sessions(ledger)) as ask:
        ledger.close()
        assert (await ask.refused("list_jobs"))["error_code"] == "unavailable"

        def broken(*_: object) -> None:
            raise RuntimeError("a secret of the house")

        monkeypatch.setitem(TOOLS, "explain", TOOLS["explain"]._replace(verb=broken))
        found = await ask.refused("explain", id=1)
        assert found["error_code"] == HoldfastError.code
        assert "secret" not in found["error"]
        with pytest.raises(Exception, match="there is no tool 'sweep'"):
            await ask.ask("sweep")


# Descriptions of the tools


async def test_tools_have_annotations() -> None:
    looks, renews, adds, ends = (True, True, False), (False, True, False), (False, False, False), (False, False, True)
    assert {name: tuple(tool.hints) for name, tool in TOOLS.items()} == {
        "claim_job": renews,
        "complete": ends,
        "enqueue": adds,
        "explain": looks,
        "fail": ends,
        "get_contents": looks,
        "get_job": looks,
        "heartbeat": renews,
        "list_jobs": looks,
        "progress": renews,
        "release": adds,
        "resume": adds,
    }


async def test_the_descriptions_of_the_tools(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger), mode="legacy") as ask:
        assert ask.client.instructions == INSTRUCTIONS
        for tool in (await ask.client.list_tools()).tools:
            assert tool.annotations is not None and tool.annotations.open_world_hint is False
            assert tool.title and tool.description and 1 <= tool.description.count(". ") + 1 <= 4
            for schema in (tool.input_schema, tool.output_schema):
                assert schema is not None and schema["type"] == "object"
                jsonschema.Draft202012Validator.check_schema(schema)
            assert tool.input_schema["additionalProperties"] is False
        assert [prompt.name for prompt in (await ask.client.list_prompts()).prompts] == ["work"]
        assert "Call resume" in (await ask.client.get_prompt("work")).messages[0].content.model_dump()["text"]
    async with tool_client(new_sessions(ledger), session=None, mode="legacy") as ask:
        assert ask.client.instructions == INSTRUCTIONS + SESSION_INSTRUCTIONS
    assert len(INSTRUCTIONS.splitlines()) <= 15


async def test_a_new_job_has_what_its_handler_declares(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=2)
    ledger.declare_policy("draft", queue="ai", limits=["api"], requires=["gpu"])
    async with tool_client(new_sessions(ledger)) as ask:
        for given, expected in (
            ({}, ("ai", {"api": 1}, ("gpu",))),
            ({"limits": {"api": 2}, "requires": ["tpu"]}, ("ai", {"api": 2}, ("tpu",))),
            ({"queue": "default"}, ("default", {}, ())),
        ):
            job = ledger.get((await ask("enqueue", kind="draft", **given))["task"]["id"])
            assert (job.queue, dict(job.limits), tuple(job.requires)) == expected
        assert ledger.get((await ask("enqueue", kind="other"))["task"]["id"]).queue == "default"


async def test_the_list_of_tools_is_short(ledger: Ledger) -> None:
    async with tool_client(new_sessions(ledger)) as ask:
        listed = (await ask.client.list_tools()).model_dump_json(by_alias=True, exclude_none=True)
    assert len(listed) < TOOLS_CHARACTERS_MAX


async def test_jobs_can_be_read_as_resources(ledger: Ledger) -> None:
    job = ledger.enqueue("draft", {"page": 7})
    [held] = ledger.claim("w", start=True)
    for number in range(limits.MCP_PAGE_MAX):
        ledger.heartbeat(held.fence, progress=number)
    async with tool_client(new_sessions(ledger)) as ask:

        async def read(uri: str) -> Any:
            [found] = (await ask.client.read_resource(uri)).contents
            return json.loads(found.model_dump()["text"])

        templates = (await ask.client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["holdfast://jobs/{id}", "holdfast://jobs/{id}/events{?after}"]
        assert [one.uri for one in (await ask.client.list_resources()).resources] == ["holdfast://counts"]
        assert (await read(f"holdfast://jobs/{job.id}"))["task"]["args"] == {"page": 7}
        assert await read("holdfast://counts") == {"counts": {"default": {"running": 1}}}
        page = await read(f"holdfast://jobs/{job.id}/events")
        assert len(page["events"]) == limits.MCP_PAGE_MAX
        rest = await read(page["next"])
        assert [event["rev"] for event in page["events"] + rest["events"]] == list(range(1, limits.MCP_PAGE_MAX + 4))
        assert rest["next"] is None
        beyond = f"holdfast://jobs/{job.id}/events?after={'9' * 19}"
        for wrong in ("holdfast://jobs/99", "holdfast://jobs/0", "holdfast://jobs/x", "holdfast://elsewhere", beyond):
            with pytest.raises(Exception, match="there is no"):
                await read(wrong)
        huge = "9" * 19
        for wrong in ("holdfast://jobs/0", f"holdfast://jobs/{huge}", f"holdfast://jobs/1/events?after={huge}"):
            with pytest.raises(MCPError) as refused:
                await read(wrong)
            assert refused.value.code == INVALID_PARAMS, wrong


# Clients


@pytest.mark.parametrize(
    ("given", "name"),
    [("Claude Code", "claude-code"), ("Ünï\x1b[1m#7", "n-1m-7"), ("", "mcp"), ("…", "mcp"), ("x" * 99, "x" * 64)],
)
async def test_a_client_is_identified_by_its_name(given: str, name: str) -> None:
    assert agent_name(given) == name


async def test_a_session_holds_a_limited_number_of_jobs(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OWN_TASKS_MAX", 2)
    monkeypatch.setattr(limits, "MCP_SESSIONS_MAX", 1)
    jobs, sessions = [ledger.enqueue("draft").id for _ in range(3)], new_sessions(ledger)
    async with tool_client(sessions) as ada, tool_client(sessions, session="s2") as twin:
        for job in jobs[:2]:
            await ada("claim_job", id=job)
        full = await ada.refused("claim_job", id=jobs[2])
        assert (full["error_code"], "release one of yours first" in full["suggested_action"]) == ("limit_exceeded", True)
        assert (await ada("claim_job", id=jobs[0]))["task"]["attempt"] == 1
        assert (await ada("resume"))["task"]["id"] in jobs[:2]
        assert (await twin.refused("claim_job", id=jobs[2]))["error_code"] == "limit_exceeded"
        for job in jobs[:2]:
            await ada("release", id=job)
        await twin("claim_job", id=jobs[2])
