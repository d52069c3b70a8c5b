"""Key files: their permissions and contents. No refusal shows a secret."""

import os
import traceback
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import ValidationError
from holdfast.files.keys import keyring, read_key, write_key
from holdfast.proof.keys import KeyFile, encode_key

KEY = holdfast.draw_key("server", "main")
SECRET = KEY.secret.seed.hex() if KEY.secret is not None else ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "main.key"
    write_key(path, KEY)
    return path


def test_a_written_key_is_read_back(file: Path) -> None:
    found = read_key(file)
    assert (found.role, found.name, found.key_id) == ("server", "main", KEY.key_id)
    assert found.secret is not None and found.secret.seed.hex() == SECRET


def test_drawn_keys_differ() -> None:
    assert len({holdfast.draw_key("worker", "arm-1").key_id for _ in range(50)}) == 50


@pytest.mark.parametrize(("role", "name"), [("client", "a"), ("", "a"), (None, "a"), ("worker", ""), ("worker", None)])
def test_a_key_needs_a_role_and_a_name(role: Any, name: Any) -> None:
    with pytest.raises(ValidationError):
        holdfast.draw_key(role, name)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o601, 0o777])
def test_a_key_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ValidationError, match=f"mode {mode:04o}"):
        read_key(file)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_any_permissions_of_the_owner_are_accepted(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert read_key(file).key_id == KEY.key_id


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff" + SECRET.encode(), SECRET.encode(), encode_key(KEY).encode() * 2, encode_key(KEY).encode() + b" " * 5_000],
    ids=["empty", "bytes", "secret", "twice", "long"],
)
def test_a_refusal_does_not_show_the_contents_of_the_file(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "bad.key"
    path.write_bytes(body)
    path.chmod(0o600)
    with pytest.raises(ValidationError, match=r"bad\.key") as caught:
        keyring([path])
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.context)
    assert SECRET not in shown


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in [
        (tmp_path, "not a plain file"),
        (tmp_path / "pipe", "not a plain file"),
        (tmp_path / "none", "No such file"),
    ]:
        with pytest.raises(ValidationError, match=why):
            read_key(path)


def test_a_key_is_never_overwritten(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(ValidationError, match="never overwritten"):
        write_key(file, holdfast.draw_key("worker", "other"))
    link = file.with_name("link.key")
    link.symlink_to(file.with_name("elsewhere"))
    with pytest.raises(ValidationError, match="never overwritten"):
        write_key(link, KEY)
    assert file.read_bytes() == before
    assert not file.with_name("elsewhere").exists()


def test_a_keyring_accepts_files_and_keys(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = holdfast.draw_key("worker", "arm-1")
    ring = keyring([str(file), file, other])
    assert [key.key_id for key in ring] == [KEY.key_id, other.key_id]
    assert SECRET not in repr(ring) + repr(list(ring)) + str(ring)
    monkeypatch.setenv("HOLDFAST_KEYS", f"{file}{os.pathsep}")
    assert len(keyring(None)) == 1
    assert len(keyring([])) == 0
    monkeypatch.delenv("HOLDFAST_KEYS")
    assert len(keyring(None)) == 0


@pytest.mark.parametrize("keys", ["main.key", b"main.key", Path("main.key"), [7], [b"main.key"]])
def test_a_keyring_refuses_other_values(keys: Any) -> None:
    with pytest.raises(ValidationError):
        keyring(keys)


def test_a_public_key_file_cannot_sign() -> None:
    with pytest.raises(ValidationError, match="no secret"):
        keyring([KeyFile(KEY.role, KEY.name, KEY.public)])


def test_a_ledger_is_opened_with_the_keys_of_the_environment(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEYS", str(file))
    with holdfast.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
        assert ledger.enrol_key(KEY.public, role="server", name="main").key_id == KEY.key_id
    file.chmod(0o644)
    with pytest.raises(ValidationError):
        holdfast.open(f"sqlite:///{tmp_path}/other.db")
    assert not (tmp_path / "other.db").exists()
