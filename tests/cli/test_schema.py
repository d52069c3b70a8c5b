"""Every command has a JSON Schema, and its answers match it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

import holdfast
from holdfast import Ledger
from holdfast.cli import main
from holdfast.cli.answer_shapes import SHAPES, schema_of
from tests.cli.conftest import Done, Run
from tests.cli.test_events import robot_beat


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from leaves(found, (*path, name))


def test_every_command_has_a_schema() -> None:
    assert set(leaves(main)) == SHAPES.keys()


@pytest.mark.parametrize("command", SHAPES)
def test_every_schema_is_a_valid_json_schema(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(command))


def check(command: str, line: str) -> Any:
    answer = json.loads(line)
    jsonschema.validate(answer, schema_of(command), cls=jsonschema.Draft202012Validator)
    return answer


@pytest.mark.parametrize("line", ['{"success":true}', "{}", '{"schema_version":"v1","success":true,"data":{"job":{},"x":1}}'])
def test_wrong_answers_do_not_match_the_schema(line: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check("job get", line)


class Said:
    """Commands in this process, in their folder; every answer is checked against its schema."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.commands: set[str] = set()

    def __call__(self, *arguments: object) -> Any:
        words = [str(argument) for argument in arguments]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        out = self._capsys.readouterr().out
        assert ended.value.code == 0, out
        command = max((name for name in SHAPES if words[: len(name.split())] == name.split()), key=len)
        self.commands.add(command)
        return [check(command, line)["data"] for line in out.splitlines()][-1]


@pytest.fixture
def said(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    return Said(capsys)


def assist_and_requeue(said: Said, ledger: Ledger, running: int) -> None:
    said("job", "assist", running)
    said("job", "unassist", running)
    ledger.enqueue("index", queue="stalls")
    [held] = ledger.claim("ada", ["stalls"], start=True)
    ledger.stall(held.fence, reason="WORKER_ERROR")
    said("job", "requeue", held.id)
    said("job", "dead-letter", held.id, "--reason-code", "timeout")


ELSEWHERE = {"beat", "demo", "events append", "mcp", "serve", "worker run", "supervise", "task run"}
"""Commands that need their own process: see below."""


def test_answers_match_their_schema(said: Said, folder: Path) -> None:
    first = said("job", "enqueue", "index", "--queue", "default", "--args", '{"n": [1, null, "x"]}', "--tier", "critical")["job"][
        "id"
    ]
    (folder / "jobs.jsonl").write_text('{"kind": "index", "queue": "default"}\n{"kind": "index", "queue": "crawl"}\n')
    said("job", "enqueue", "--lines", "jobs.jsonl")
    with holdfast.open("sqlite:///holdfast.db") as ledger:
        ledger.sign_in("ada", body={"queues": ["default"]})
        [held] = ledger.claim("ada", limit=1, start=True)
        ledger.heartbeat(held.fence, stage="TASK", progress=1, checkpoint={"at": 1})
        said("gate", held.id)
        said("job", "get", held.id)
        assist_and_requeue(said, ledger, held.id)
        ledger.fail(held.fence, RuntimeError("no"), retryable=False)
        dead = [ledger.enqueue("index").id for _ in range(2)]
        for id_ in dead:
            ledger.dead_letter(id_, reason_code="timeout", failure_stage="exec", error={"message": "x"})
        ledger.outbox.add("hook", from_beginning=True)
    for status in ("list", "list --status dead_lettered", "list --limit 1"):
        said("job", *status.split())
    said("job", "get", dead[0])
    said("job", "wait", *dead)
    said("job", "discard", held.id)
    said("explain", dead[0])
    said("explain", first)
    said("job", "events", first)
    said("events", "tail", "--once")
    said("job", "events", first, "--dialect", "liveness")
    said("events", "tail", "--once", "--dialect", "jobs")
    said("dlq", "list")
    said("dlq", "replay", dead[0])
    said("dlq", "get", dead[0])
    said("dlq", "discard", dead[0])
    said("job", "replay", dead[1])
    said("job", "cancel", first + 1)
    queues_and_policies(said)
    said("worker", "list")
    said("top")
    said("supervise", "--list")
    said("sweep")
    said("sink", "list")
    said("sink", "revive", "hook")
    skip_one(said)
    said("sink", "drop", "hook")
    said("schema")
    well(said)
    said("migrate")
    said("completion", "fish")
    tasks(said)
    keys_and_seals(said)
    tokens(said)
    schedules(said)
    groups(said)
    assert SHAPES.keys() - said.commands <= ELSEWHERE


def flow(said: Said) -> None:
    said("limit", "set", "api", "--concurrent", "5", "--rate", "600/1m", "--by", "args.tenant")
    said("limit", "set", "api", "--for", "acme", "--concurrent", "9")
    said("job", "enqueue", "ask", "--queue", "chat", "--args", '{"tenant": "a"}', "--limit", "api=2", "--partition", "a")
    said("limit", "list")
    assert [key["key"] for key in said("limit", "get", "api")["keys"]] == ["a", "acme"]
    said("limit", "unset", "api", "--for", "acme")
    said("limit", "unset", "api")
    said("queue", "set", "chat", "--weight", "a=3")
    said("queue", "list")
    said("queue", "get", "chat")


def schedules(said: Said) -> None:
    said("schedule", "add", "nightly", "report", "--queue", "reports", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    said("schedule", "add", "often", "report", "--queue", "reports", "--every", "90s", "--start", "2026-01-01T00:00")
    for verb in ("get", "pause", "resume", "run", "preview", "remove"):
        said("schedule", verb, "nightly")
    said("schedule", "list")
    flow(said)


def groups(said: Said) -> None:
    said("group", "add", "import-42", "--then", '{"kind": "publish"}', "--on-dead", '{"kind": "alarm"}')
    said("job", "enqueue", "load", "--queue", "imports", "--group", "import-42")
    for verb in ("get", "jobs", "close", "cancel", "replay"):
        said("group", verb, "import-42")
    said("group", "list")
    said("group", "add", "empty")
    said("group", "close", "empty")
    said("group", "wait", "empty")


def tasks(said: Said) -> None:
    who = ["--agent", "ada", "--request-id"]
    first, second, third = (said("job", "enqueue", "review", "--queue", "tasks")["job"]["id"] for _ in range(3))
    said("task", "start", "--id", first, *who, "r-1")
    said("task", "heartbeat", "--id", first, *who, "r-2", "--progress", 3)
    said("task", "get", "--id", first)
    said("task", "complete", "--id", first, *who, "r-3", "--result", "3")
    said("job", "result", first)
    said("task", "start", "--id", second, *who, "r-4")
    said("task", "fail", "--id", second, *who, "r-5", "--error", "no route", "--permanent")
    said("task", "start", "--id", third, *who, "r-6")
    said("task", "release", "--id", third, *who, "r-7")
    said("job", "move", third, "--queue", "tasks")
    said("job", "move", third, "--any-worker")
    said("job", "reprioritise", third, "--priority", 1)
    said("job", "reschedule", third)
    said("task", "list")
    said("task", "gc", *who, "r-8")
    assert said("resume", *who, "r-9", "--queue", "tasks")["task"]["id"] == third


def well(said: Said) -> None:
    """An empty ledger needs no action."""
    said("migrate", "--db", "sqlite:///empty.db")
    said("queue", "list", "--db", "sqlite:///empty.db")
    said("doctor", "--db", "sqlite:///empty.db")


def queues_and_policies(said: Said) -> None:
    said("queue", "pause", "crawl")
    said("queue", "list")
    said("queue", "get", "chat")
    said("queue", "unpause", "crawl")
    with holdfast.open("sqlite:///holdfast.db") as ledger:
        ledger.declare_policy("index", queue="crawl", attempts_max=7)
    said("policy", "set", "index", "lease_ttl=2m")
    said("policy", "set", "--tier", "critical", "signed=none")
    said("policy", "get", "index", "--tier", "critical")
    said("policy", "list")
    said("policy", "unset", "index")


def skip_one(said: Said) -> None:
    from holdfast.store.outbox import SinkPosition

    with holdfast.open("sqlite:///holdfast.db") as ledger:
        ledger.outbox.save(SinkPosition("hook", 0, 9, dead_at=ledger.outbox.now(), last_error="no route"), 0)
    said("sink", "skip", "hook")


def keys_and_seals(said: Said) -> None:
    said("key", "new", "main", "--role", "server")
    said("key", "new", "arm", "--role", "worker", "--no-enrol")
    said("key", "enrol", "arm.key", "--key", "main.key")
    said("seal", "--once", "--key", "main.key")
    said("key", "revoke", said("key", "rotate", "arm", "--key", "main.key")["key_id"], "--key", "main.key")
    said("key", "list")
    said("key", "export")
    said("key", "export", "--out", "keys.json")
    said("events", "export", "--out", "all.jsonl")
    said("verify", "all.jsonl", "--keys", "keys.json", "--allow-unsealed")
    said("verify", "--job", "1", "--out", "one.jsonl")


def tokens(said: Said) -> None:
    said("token", "new", "--role", "worker", "--name", "arm-1", "--expires", "90d")
    said("token", "list")
    said("token", "revoke", "arm-1")


def answered(command: str, done: Done) -> None:
    assert done.code == 0, done.err
    assert check(command, done.out)["success"]


def test_answers_of_commands_with_processes_match_their_schema(run: Run) -> None:
    answered("supervise", run("supervise", "--name", "once", "--json", "--", "true"))
    answered("supervise", run("supervise", "--list", "--json"))
    answered("task run", run("task", "run", "--agent", "ada", "--json", "--", "true"))
    answered("demo", run("demo", "--jobs", "5", "--workers", "2", "--json"))
    check("beat", run("beat", "--json").out)


def test_the_answer_to_an_appended_event_matches_its_schema(run: Run, folder: Path) -> None:
    _, envelope = robot_beat(folder)
    answered("events append", run("events", "append", "-", "--db", "sqlite:///jobs.db", "--json", stdin=envelope))


@pytest.mark.parametrize("arguments", [["job", "get", "9"], ["dlq", "get", "9"], ["gate", "9"]], ids=" ".join)
def test_a_failure_matches_the_schema(run: Run, arguments: list[str]) -> None:
    nowhere = run(*arguments, "--json")
    assert (nowhere.code, check(" ".join(arguments[:-1]), nowhere.out)["success"]) == (3, False)
    run("migrate")
    done = run(*arguments, "--json")
    assert done.code == 1
    assert not check(" ".join(arguments[:-1]), done.out)["success"]


def test_the_schema_of_one_command_is_printed(run: Run) -> None:
    assert json.loads(run("schema", "job", "get").out) == schema_of("job get")
    assert json.loads(run("schema", "job").out).keys() == {name for name in SHAPES if name.startswith("job ")}
    refused = run("schema", "jib")
    assert (refused.code, "there is no command" in refused.err) == (2, True)
