"""How commands end: `--json` at every place, ^C, a closed reader, texts with control characters."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

import holdfast
from tests.cli.conftest import Run, Start, command, environment
from tests.cli.test_help import COMMANDS

HOSTILE = "a\x1b[31m\x9b2J\u202eb\u2066\nc\x00\u2028d"
SEEN = r"a\x1b[31m\x9b2J\u202eb\u2066\nc\x00\u2028d"


# --json


@pytest.mark.parametrize("words", [["--json", "job", "list"], ["job", "--json", "list"], ["job", "list", "--json"]])
def test_the_json_option_is_accepted_at_every_place(run: Run, words: list[str]) -> None:
    assert run("migrate").code == 0
    done = run(*words)
    assert (done.code, done.answer["data"]) == (0, {"jobs": [], "next_after": None, "counts": {}})


MISUSES = [
    "--json", "--json nothing", "nothing --json", "job --json", "job --json bury", "--json job list --bury",
    "job get --json", "job get x --json", "--json task start", "schema nothing --json", "--json verify",
]  # fmt: skip


@pytest.mark.parametrize("words", MISUSES)
def test_usage_errors_have_a_json_envelope(run: Run, words: str) -> None:
    done = run(*words.split())
    assert (done.code, done.err) == (2, "")
    assert (done.answer["success"], done.answer["error_code"]) == (False, "usage")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_noun_takes_json_and_no_color(name: str) -> None:
    options = [option for parameter in COMMANDS[name].params for option in parameter.opts]
    assert "--json" in options and "--no-color" in options


# Ends


def unread(words: str, folder: Path) -> tuple[int, bytes]:
    """The exit code and standard error of a command whose reader is closed before its first output."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            command(*words.split()), cwd=folder, env=environment(), stdout=theirs, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(theirs)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    ["events export", "job list", "job list --json", "job get 99 --json", "top", "--help", "job --help", "schema"],
)
def test_a_closed_reader_ends_a_command_quietly(folder: Path, words: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
    code, said = unread(words, folder)
    assert (code, said) == (141, b"")


def test_a_heartbeat_is_recorded_if_its_answer_is_not_read(folder: Path, run: Run) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
        who = "--id 1 --agent ada"
        assert run(*f"task start {who} --request-id r1".split()).code == 0
        assert unread(f"task heartbeat {who} --request-id r2", folder) == (141, b"")
        assert ledger.events(1)[-1].request_id == "r2"


@pytest.mark.parametrize("words", ["job list", "job list --json", "events export"])
def test_an_answer_that_cannot_be_written_to_a_full_disk_is_a_failure(folder: Path, words: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(*words.split()), cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode in (1, 2)
    assert b"No space left" in done.stderr and b"Traceback" not in done.stderr


def with_closed(closed: str, folder: Path, words: str) -> subprocess.CompletedProcess[bytes]:
    """The result of a command that a shell starts with closed streams."""
    shell = ["/bin/sh", "-c", f'"$@" {closed}', "sh", *command(*words.split())]
    return subprocess.run(shell, cwd=folder, env=environment(), capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_treated_as_dev_null(folder: Path, closed: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        for words in ("job enqueue index --queue default", "top", "doctor", "supervise --name n -- true"):
            done = with_closed(closed, folder, words)
            assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (words, done.stderr)
        assert ledger.get(1).kind == "index"


def test_a_closed_standard_input_is_empty(folder: Path) -> None:
    done = with_closed("<&-", folder, "job enqueue index --queue default --args - --json")
    assert (done.returncode, json.loads(done.stdout)["error_code"]) == (2, "usage")


LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("variables", LOCALES, ids=["ascii", "latin-1"])
def test_answers_are_printed_in_a_locale_without_their_characters(folder: Path, variables: dict[str, str]) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("größe", {"an": "日本語"})
    (folder / "p.toml").write_text('window = "1m"  # größe\n', encoding="utf-8")
    for words in ("doctor", "dlq replay --help", "job list", "job get 1", "supervise --name n --policy p.toml -- true"):
        env = environment(**variables)
        done = subprocess.run(command(*words.split()), cwd=folder, env=env, capture_output=True, check=False, timeout=60)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (words, done.stderr)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_interrupted_commands_end_with_130(start: Start, folder: Path, form: list[str]) -> None:
    """The command reads a pipe without a writer. When the pipe is open, the command is running."""
    running = start("job", "enqueue", "--lines", "gate", *form)
    with (folder / "gate").open("w"):
        running.signal(signal.SIGINT)
        done = running.rest()
    assert (done.code, "Traceback" in done.err) == (130, False)
    if form:
        assert json.loads(done.out)["error_code"] == "interrupted"
    else:
        assert "interrupted" in done.err


# Control characters


def test_control_characters_in_texts_are_escaped(run: Run, folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        made = ledger.enqueue("index", {"said": HOSTILE})
        ledger.dead_letter(made.id, reason_code="timeout", failure_stage="exec", error={"message": HOSTILE.replace("\n", "")})
        ledger.sign_in("ada", body={"host": HOSTILE})
    flat = SEEN.replace(r"\n", "")
    for words, seen in (("dlq list", flat), (f"dlq get {made.id}", flat[:20]), ("worker list", SEEN), ("top --once", SEEN)):
        said = run(*words.split()).out
        assert seen in said, words
        assert is_harmless(said), words


@pytest.mark.parametrize(
    "words",
    [
        [HOSTILE], ["job", HOSTILE], ["job", "list", f"--{HOSTILE}"], ["job", "get", HOSTILE], ["job", "list", "--kind", HOSTILE],
        ["job", "list", "--status", HOSTILE],
        ["schema", HOSTILE], ["sink", "revive", HOSTILE], ["job", "list", "--db", HOSTILE], ["verify", HOSTILE],
        ["job", "list", "--db", f"sqlite:///{HOSTILE}"], ["worker", "run", HOSTILE], ["queue", "pause", HOSTILE],
    ],
)  # fmt: skip
def test_control_characters_in_arguments_are_escaped(run: Run, words: list[str]) -> None:
    words = [word.replace("\0", "") for word in words]
    done = run(*words)
    assert done.code != 0
    assert is_harmless(done.out + done.err), done.err
    assert run(*words, "--json").answer["success"] is False


def is_harmless(said: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in said) and "\nc" not in said
