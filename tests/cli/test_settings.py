"""Options override the environment, and that overrides holdfast.toml: for every setting, also on the fast path."""

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.agent import Agent
from holdfast.cli import main
from holdfast.program.fast_heartbeat import try_heartbeat
from tests.cli.conftest import Run

PLACES = ("typed", "env", "toml")
WHERE = [(), ("toml",), ("env",), ("env", "toml"), ("typed",), ("typed", "toml"), ("typed", "env"), PLACES]


def said_by(folder: Path, where: tuple[str, ...], name: str, option: str, value: str) -> tuple[list[str], dict[str, str]]:
    """The options and the environment that give a setting at these places, at each with the name of the place."""
    variable = f"HOLDFAST_{name.upper()}"
    if "toml" in where:
        text = json.dumps([value.format("toml")] if name == "keys" else value.format("toml"))
        (folder / "holdfast.toml").write_text(f"{name} = {text}\n")
    typed = [option, value.format("typed")] if "typed" in where else []
    return typed, {variable: value.format("env") if "env" in where else ""}


@pytest.mark.parametrize("where", WHERE)
def test_the_nearest_setting_selects_the_ledger(run: Run, folder: Path, where: tuple[str, ...]) -> None:
    for name in (*PLACES, "holdfast"):
        with holdfast.open(f"sqlite:///{folder}/{name}.db") as ledger:
            ledger.sign_in(name)
    typed, env = said_by(folder, where, "url", "--db", "sqlite:///{}.db")
    [found] = run("worker", "list", "--json", *typed, **env).answer["data"]["workers"]
    assert found["name"] == (where[0] if where else "holdfast")


@pytest.mark.parametrize("where", WHERE)
def test_the_nearest_setting_selects_the_keys(run: Run, folder: Path, where: tuple[str, ...]) -> None:
    from holdfast.composition import draw_key
    from holdfast.files.keys import write_key

    for name in PLACES:
        write_key(folder / f"{name}.key", draw_key("operator", name))
    typed, env = said_by(folder, where, "keys", "--key", "{}.key")
    assert run("job", "enqueue", "index", "--queue", "default", *typed, LOGNAME="jo", **env).code == 0
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        assert ledger.events(1)[0].actor == f"client:{where[0] if where else 'jo'}"


@pytest.mark.parametrize("verb", ["start", "heartbeat"])
@pytest.mark.parametrize("where", WHERE[1:])
def test_the_nearest_setting_selects_the_agent(run: Run, folder: Path, where: tuple[str, ...], verb: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
        typed, env = said_by(folder, where, "agent", "--agent", "{}")
        if verb == "heartbeat":
            Agent(ledger, where[0]).start(1)
    found = run("task", verb, "--id", "1", "--request-id", "r", "--json", *typed, **env).answer["data"]["task"]
    assert (found["claimed_by"], found["session"]) == (where[0], "agent")


@pytest.mark.parametrize("where", WHERE)
def test_the_nearest_setting_selects_the_session(run: Run, folder: Path, where: tuple[str, ...]) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
    typed, env = said_by(folder, where, "session", "--session", "{}")
    found = run("resume", "--agent", "ada", "--request-id", "r", "--json", *typed, **env).answer["data"]["task"]
    assert found["session"] == (where[0] if where else "agent")


def test_an_agent_name_is_required(run: Run) -> None:
    done = run("task", "start", "--id", "1", "--request-id", "r", "--json")
    assert (done.code, "--agent" in done.answer["error"]) == (2, True)


# Wrong settings

WRONG: list[tuple[bytes, str]] = [
    (b"url = \n", "cannot be read"),
    (b"\xff", "cannot be read"),
    (b'ulr = "sqlite:///x.db"\n', "has no setting 'ulr'"),
    (b"[agent]\n", "agent must be a non-empty text"),
    (b"url = 3\n", "url must be a non-empty text"),
    (b'url = ""\n', "url must be a non-empty text"),
    (b"agent = true\n", "agent must be a non-empty text"),
    (b"session = 1\n", "session must be a non-empty text"),
    (b'keys = "main.key"\n', "keys must be a list of files"),
    (b"keys = [3]\n", "keys must be a list of files"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_setting_is_reported(run: Run, folder: Path, text: bytes, message: str) -> None:
    (folder / "holdfast.toml").write_bytes(text)
    for words in (["sweep"], ["task", "heartbeat", "--id", "1", "--agent", "ada", "--request-id", "r"]):
        done = run(*words, "--json")
        assert (done.code, done.answer["error_code"]) == (2, "usage")
        assert done.answer["error"].startswith("holdfast.toml") and message in done.answer["error"]
    assert not list(folder.glob("*.db"))


def test_an_unreadable_settings_file_is_reported(run: Run, folder: Path) -> None:
    (folder / "holdfast.toml").mkdir()
    done = run("sweep")
    assert (done.code, "holdfast.toml cannot be read" in done.err) == (2, True)


# The fast path


OTHERS = 'agent = "bob"\nsession = "s"\nurl = "sqlite:///other.db"'
SAID: list[tuple[str, dict[str, str], list[str], bool]] = [
    ("", {}, ["--agent", "ada"], True),
    ("", {"AGENT": "ada", "SESSION": "", "URL": ""}, [], True),
    ("", {"AGENT": "ada", "URL": "sqlite:///sub/../holdfast.db"}, [], True),
    ('agent = "ada"', {}, [], True),
    ('agent = "ada"\nsession = "agent"\nurl = "sqlite:///holdfast.db"', {}, [], True),
    (OTHERS, {"AGENT": "ada", "SESSION": "agent"}, ["--db", "sqlite:///holdfast.db"], True),
    ('agent = "bob"', {"AGENT": "eve"}, ["--agent", "ada"], True),
    ('agent = "ada"\nkeys = ["main.key"]', {}, [], False),
    ("agent = 3", {}, ["--agent", "ada", "--db", "sqlite:///holdfast.db"], False),
    ("nonsense", {}, ["--agent", "ada", "--db", "sqlite:///holdfast.db"], False),
    ('agent = "ada"', {}, ["--agent", ""], False),
    ('agent = "ada"', {}, ["--session="], False),
    ("", {"KEYS": "main.key", "AGENT": "ada"}, [], False),
]  # fmt: skip


@pytest.mark.parametrize(("toml", "env", "typed", "is_quick"), SAID)
def test_the_fast_path_uses_the_same_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    toml: str,
    env: dict[str, str],
    typed: list[str],
    is_quick: bool,
) -> None:
    """If both paths read the same settings, the normal path takes the recorded beat for a repetition and gives the
    same answer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("AGENT", "SESSION", "URL", "KEYS"):
        monkeypatch.setenv(f"HOLDFAST_{name}", env.get(name, ""))
    if toml:
        (tmp_path / "holdfast.toml").write_text(toml)
    with holdfast.open("sqlite:///holdfast.db", keys=[]) as ledger:
        ledger.enqueue("index")
        Agent(ledger, "ada").start(1)
        words = ["--id", "1", "--request-id", "r", "--json", *typed]
        said = try_heartbeat(words)
        assert (said is not None) is is_quick
        assert (ledger.events(1)[-1].request_id == "r") is is_quick
    with pytest.raises(SystemExit) as ended:
        main(["task", "heartbeat", *words])
    slow: Any = capsys.readouterr().out
    assert (ended.value.code == 0) is is_quick
    if is_quick:
        assert said is not None
        assert slow == said.replace('}},"request_id"', ',"replayed":true}},"request_id"')
