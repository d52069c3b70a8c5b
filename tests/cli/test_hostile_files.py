"""Files that a command has to read: a device, a pipe or a huge file is refused at once."""

import os
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ValidationError
from holdfast.supervise.lease import read_result
from tests.cli.conftest import Run

GIB = 1 << 30
KINDS = ["device", "pipe", "huge", "folder"]


def made(path: Path, kind: str) -> Path:
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch(0o600)
        os.truncate(path, GIB)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_settings_must_be_a_regular_file_of_bounded_size(
    run: Run, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(folder / "holdfast.toml", kind)
    for words in (["sweep"], ["task", "heartbeat", "--id", "1", "--agent", "ada", "--request-id", "r"]):
        done = run(*words, "--json")
        assert (done.code, done.answer["error_code"]) == (2, "usage")
        assert done.answer["error"].startswith("holdfast.toml cannot be read: it ")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    with pytest.raises(ValidationError, match=r"holdfast\.toml cannot be read"):
        holdfast.App()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "--key", "{}"],
        ["job", "enqueue", "index", "--queue", "default", "--args", "@{}"],
        ["job", "enqueue", "index", "--queue", "default", "--policy", "@{}"],
        ["task", "complete", "--id", "1", "--agent", "a", "--request-id", "r", "--result", "@{}"],
        ["supervise", "--policy", "{}", "--", "true"],
        ["verify", "shop.py", "--keys", "{}"],
        ["verify", "shop.py", "--head", "{}"],
    ],
    ids=lambda words: words[0] + words[-2] if words[-1] == "{}" else " ".join(words[:2]),
)
def test_other_files_must_be_regular_and_of_bounded_size(run: Run, folder: Path, words: list[str], kind: str) -> None:
    made(folder / "odd", kind)
    done = run(*(word.format("odd") for word in words))
    assert done.code in (1, 2)
    assert "Traceback" not in done.err
    assert "odd" in done.err or kind == "pipe"  # a pipe without a writer is reported as empty


@pytest.mark.parametrize("kind", ["device", "huge"])
def test_a_line_has_a_maximum_length(run: Run, folder: Path, kind: str) -> None:
    made(folder / "odd", kind)
    done = run("job", "enqueue", "--lines", "odd")
    assert (done.code, "odd, line 1: it has 16777217 bytes; the limit is 16777216" in done.err) == (2, True)


def test_arguments_may_come_through_a_pipe(run: Run, folder: Path) -> None:
    """A shell makes such a pipe for @<(command)."""
    writer = threading.Thread(target=lambda: (folder / "gate").write_text('{"a": 1}'))
    writer.start()
    done = run("job", "enqueue", "index", "--queue", "default", "--args", "@gate", "--json")
    writer.join()
    assert (done.code, done.answer["data"]["job"]["args"]) == (0, {"a": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_not_a_regular_file_is_ignored(tmp_path: Path, kind: str) -> None:
    found = read_result(made(tmp_path / "result", kind))
    assert (found is None) == (kind != "huge")


@pytest.mark.parametrize(
    "words",
    [
        ["job", "enqueue", "index", "--queue", "default", "--args", '{"a": 1, "b": {"c": 1, "c": 2}}'],
        ["job", "enqueue", "index", "--queue", "default", "--args", "-"],
        ["job", "enqueue", "index", "--queue", "default", "--args", "@twice.json"],
        ["job", "enqueue", "index", "--queue", "default", "--policy", '{"attempts_max": 1, "attempts_max": 2}'],
        ["job", "enqueue", "--lines", "twice.json"],
        ["task", "complete", "--id", "1", "--agent", "a", "--request-id", "r", "--result", '{"a": 1, "a": 2}'],
        ["task", "heartbeat", "--id", "1", "--agent", "a", "--request-id", "r", "--checkpoint", '[{"a": 1, "a": 2}]'],
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_json_that_names_a_key_twice_is_refused(run: Run, folder: Path, words: list[str]) -> None:
    (folder / "twice.json").write_text('{"kind": "index", "args": {"a": 1, "a": 2}}')
    done = run(*words, "--json", stdin='{"a": 1, "a": 2}')
    assert (done.code, done.answer["error_code"]) == (2, "usage")
    assert "names a key twice" in done.answer["error"]
    assert "--lines" in words or not (folder / "holdfast.db").exists()


def test_a_setting_of_a_supervisor_is_named_once(run: Run) -> None:
    done = run("supervise", "--policy", "max_restarts=1,max_restarts=2", "--", "true")
    assert (done.code, "each setting may be given once" in done.err) == (2, True)
