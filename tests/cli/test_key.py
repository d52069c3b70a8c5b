"""`holdfast key`: from the first key to its rotation, and no secret is ever shown."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.files.keys import write_key
from holdfast.proof.keys import KeyFile, decode_key
from holdfast.proof.notes import parse_key
from tests.cli.conftest import Done, Run


class KeyCommands:
    """A folder with keys, and the command `holdfast key`."""

    def __init__(self, run: Run, folder: Path, url: str) -> None:
        self._run = run
        self.folder = folder
        self.url = url

    def __call__(self, *arguments: object, **env: str) -> Done:
        done = self._run("key", *arguments, "--db", self.url, **env)
        for file in self.folder.glob("*.key"):
            assert self.secret(file.name) not in done.out + done.err
        return done

    def ask(self, *arguments: object, **env: str) -> Any:
        done = self(*arguments, "--json", **env)
        assert done.code == 0, done
        return done.answer["data"]

    def unenrolled(self, *arguments: object, **env: str) -> Any:
        """The error of a key that was created and could not be enrolled."""
        done = self(*arguments, "--json", **env)
        assert (done.code, done.answer["error_code"]) == (1, "not_enrolled"), done
        return done.answer["error_context"]

    def secret(self, file: str) -> str:
        secret: str = json.loads((self.folder / file).read_text())["secret"]
        return secret

    @property
    def standing(self) -> list[tuple[str, bool]]:
        """Every key's name, and whether it is valid."""
        with self.opened() as ledger:
            found = ledger.keys()
        return [(record.name, record.revoked_pos is None) for record in found]

    def opened(self, *keys: KeyFile) -> Ledger:
        path = self.url.removeprefix("sqlite:///")
        return holdfast.open(f"sqlite:///{self.folder / path}" if path != self.url else self.url, keys=keys)

    def start(self, *rest: tuple[str, str]) -> None:
        """Create the first key in main.key, and others without a file."""
        first = holdfast.draw_key("server", "main")
        write_key(self.folder / "main.key", first)
        with self.opened(first) as ledger:
            ledger.enrol_key(first.public, role="server", name="main")
            for name, role in rest:
                ledger.enrol_key(holdfast.draw_key(role, name).public, role=role, name=name)


@pytest.fixture
def key(run: Run, folder: Path, store_url: str) -> KeyCommands:
    return KeyCommands(run, folder, store_url)


@pytest.fixture
def key_here(run: Run, folder: Path) -> KeyCommands:
    """The same on SQLite only."""
    return KeyCommands(run, folder, "sqlite:///holdfast.db")


@pytest.fixture
def started(key_here: KeyCommands) -> KeyCommands:
    """With the first key."""
    key_here.start()
    return key_here


def test_keys_are_created_enrolled_rotated_and_revoked(key: KeyCommands) -> None:
    first = key.ask("new", "main", "--role", "server")
    assert (first["role"], first["name"], first["file"], first["enrolled"]) == ("server", "main", "main.key", True)
    arm = key.ask("new", "arm-1", "--role", "worker", "--key", "main.key")
    assert arm["enrolled"] and arm["enrolled_pos"] > first["enrolled_pos"]
    shown = key("list").out
    assert "arm-1" in shown and "good" in shown and arm["key_id"] in shown

    turned = key.ask("rotate", "arm-1", "--key", "main.key")
    assert (turned["revoked"], turned["file"]) == (arm["key_id"], f"arm-1-{turned['key_id']}.key")
    server = key.ask("rotate", first["key_id"], "--key", "main.key", "--out", "next.key")
    key.ask("revoke", turned["key_id"], "--key", "next.key")
    assert key("revoke", turned["key_id"], "--key", "main.key").code == 0  # it is revoked already
    assert key.standing == [("main", False), ("arm-1", False), ("arm-1", False), ("main", True)]
    assert key.ask("list")["keys"][-1]["key_id"] == server["key_id"]
    assert "revoked" in key("list").out


def test_a_key_file_is_readable_by_its_owner_only(started: KeyCommands) -> None:
    file = started.folder / "main.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert decode_key(file.read_text()).secret is not None
    before = file.read_text()
    done = started("new", "main", "--role", "server", "--key", "main.key")
    assert done.code == 1
    assert "never overwritten" in done.err
    assert file.read_text() == before
    file.chmod(0o640)
    done = started("new", "arm-1", "--role", "worker", "--key", "main.key")
    assert done.code == 1
    assert "chmod 600" in done.err
    assert not (started.folder / "arm-1.key").exists()


def test_a_key_without_an_enrolling_key_is_created_and_not_enrolled(started: KeyCommands) -> None:
    done = started("new", "arm-1", "--role", "worker")
    assert done.code == 1
    assert "enrolled  no: this process has no key that may vouch" in done.out
    assert re.search(r"Then: holdfast key enrol (--db \S+ )?arm-1\.key --key", done.err)
    arm = started.ask("new", "arm-2", "--role", "worker", "--no-enrol")
    assert (arm["enrolled"], arm["enrolled_pos"], arm["why_not"]) == (False, None, "--no-enrol was given")
    assert started.standing == [("main", True)]

    asked = ("--key", "main.key")
    assert started.ask("enrol", "arm-1.key", *asked)["key"]["name"] == "arm-1"
    assert started.ask("enrol", arm["public"], "--role", "worker", "--name", "arm-2", *asked)["key"]["key_id"] == arm["key_id"]
    assert started("enrol", arm["public"], "--role", "worker", *asked).code == 2


def test_a_worker_key_creates_no_ledger(key_here: KeyCommands) -> None:
    made = key_here.unenrolled("new", "arm-1", "--role", "worker")
    assert made["why_not"] == "there is no ledger at sqlite:///holdfast.db"
    assert not list(key_here.folder.glob("*.db"))


def test_a_ledger_created_by_the_first_key_is_reported(key_here: KeyCommands) -> None:
    assert "sqlite:///holdfast.db did not exist" in key_here("new", "main", "--role", "server").err
    assert key_here.standing == [("main", True)]


def test_a_key_is_created_if_the_ledger_is_out_of_reach(key_here: KeyCommands) -> None:
    key_here.url = "postgresql://127.0.0.1:1/none"
    made = key_here.unenrolled("new", "main", "--role", "server")
    assert not made["enrolled"]
    assert "cannot reach the database" in made["why_not"]


def test_a_rotation_that_is_refused_leaves_no_file(started: KeyCommands) -> None:
    done = started("rotate", "main")
    assert done.code == 1
    assert "forbidden" in done.err and "--key" in done.err
    assert [file.name for file in started.folder.glob("*.key")] == ["main.key"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rotate", "unknown"], 2, "no key in use is named"),
        (["rotate", "twin"], 2, "2 keys match"),
        (["revoke", "0123456789abcdef"], 2, "no key id begins with it"),
        (["enrol", "main.key", "--role", "operator", "--name", "ann"], 2, "main.key is a key of server 'main'"),
        (["new", "arm"], 2, "--role"),
        (["new", "../arm", "--role", "worker"], 2, "is not a usable file name"),
        (["new", "arm", "--role", "worker", "--out", "no/folder.key"], 1, "cannot be written"),
        (["new", "", "--role", "worker"], 1, "name must be a printable text"),
        (["list", "--key", "none.key"], 1, "No such file"),
        (["list", "--key", "shop.py"], 1, "shop.py cannot be used"),
        (["list", "--key", "gate"], 1, "not a plain file"),
        (["export", "--out", "no/folder.json"], 2, "cannot be written"),
        (["enrol", "none.key"], 1, "No such file"),
    ],
)
def test_wrong_arguments_are_reported(key_here: KeyCommands, arguments: list[str], code: int, message: str) -> None:
    key_here.start(("twin", "worker"), ("twin", "operator"))
    (key_here.folder / "shop.py").chmod(0o600)
    done = key_here(*arguments, *([] if "--key" in arguments else ["--key", "main.key"]))
    assert (done.code, message in done.err) == (code, True), done
    assert key_here.standing == [("main", True), ("twin", True), ("twin", True)]


def test_the_operator_is_the_owner_of_the_loaded_key(started: KeyCommands) -> None:
    started.ask("new", "ann", "--role", "operator", "--key", "main.key")
    arm = started.ask("new", "arm-1", "--role", "worker", "--key", "ann.key", "--key", "main.key")
    first, ann, found = started.ask("list")["keys"]
    assert found["enrolled_by"] == "operator:ann" != ann["enrolled_by"]
    assert [record["vouched_by"] for record in (first, ann, found)] == [first["key_id"], first["key_id"], ann["key_id"]]
    shown = started("list").out
    assert "itself" in shown and f"ann {ann['key_id']}" in shown
    assert started.ask("revoke", arm["key_id"][:8], "--key", "ann.key")["key"]["revocation_vouched_by"] == ann["key_id"]
    assert started.ask("revoke", "ann", "--key", "main.key")["key"]["name"] == "ann"


def test_enrol_accepts_a_role_and_name_that_match_the_file(started: KeyCommands) -> None:
    started.ask("new", "ann", "--role", "operator", "--no-enrol")
    asked = ("--role", "operator", "--name", "ann", "--key", "main.key")
    assert started.ask("enrol", "ann.key", *asked)["key"]["name"] == "ann"


def test_key_files_are_found_by_the_environment_or_the_settings(started: KeyCommands) -> None:
    (started.folder / "bad.key").write_text(json.dumps({"secret": "not a key"}))
    (started.folder / "bad.key").chmod(0o600)
    assert started.ask("new", "a", "--role", "worker", HOLDFAST_KEYS="main.key")["enrolled"]
    assert started("list", HOLDFAST_KEYS="main.key:bad.key").code == 1
    (started.folder / "holdfast.toml").write_text('keys = ["main.key"]\n')
    assert started.ask("new", "b", "--role", "worker")["enrolled"]
    assert not started.unenrolled("new", "c", "--role", "worker", HOLDFAST_KEYS="a.key")["enrolled"]
    (started.folder / "holdfast.toml").write_text('keys = ["bad.key"]\n')
    assert started.ask("new", "d", "--role", "worker", "--key", "main.key", HOLDFAST_KEYS="bad.key")["enrolled"]
    assert started("list").code == 1


def test_public_keys_are_exported(key: KeyCommands) -> None:
    with key.opened():
        assert key.ask("export")["vkey"] is None
    first = key.ask("new", "main", "--role", "server")
    arm = key.ask("new", "größe", "--role", "worker", "--out", "arm.key", "--key", "main.key")
    said = key("export").out
    assert said.isascii()
    found = json.loads(said)
    assert key.ask("export") == found
    assert key("export", "--out", "keys.json").out == "2 keys are in keys.json.\n"
    assert json.loads((key.folder / "keys.json").read_text()) == found
    with key.opened() as ledger:
        assert (found["holdfast_keys"], found["ledger"]) == (1, ledger.id)
    assert found["keys"] == [
        {
            "key_id": made["key_id"],
            "role": made["role"],
            "name": made["name"],
            "public": made["public"],
            "enrolled_pos": made["enrolled_pos"],
            "revoked_pos": None,
        }
        for made in (first, arm)
    ]
    checks = parse_key(found["vkey"])
    assert (checks.name, checks.public.key_id) == (f"holdfast/{found['ledger']}", first["key_id"])
