"""What all commands have in common: the ledger, the form of answers, the exit codes."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast.cli.wrong_words import GONE
from holdfast.store.outbox import SinkPosition
from holdfast.testing import ManualClock
from tests.cli.conftest import Run
from tests.support.waiting import wait_until


@pytest.fixture
def empty_schema(new_schema: str) -> str:
    """A test migrates it."""
    return new_schema


def test_the_version_needs_neither_store_nor_worker() -> None:
    program = (
        "import sys\nfrom holdfast.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print([name for name in sys.modules if name in ('psycopg', 'apsw', 'asyncio', 'holdfast.worker', 'holdfast.cli.dlq')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"holdfast, version {holdfast.__version__}", "[]"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(run: Run, shell: str) -> None:
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in run("completion", shell).out
    found = run(COMP_WORDS="holdfast jo", COMP_CWORD="1", _HOLDFAST_COMPLETE="bash_complete").out
    assert found == "plain,job\n"


def test_shell_completion_offers_the_queues_of_the_ledger(run: Run) -> None:
    asked = {"COMP_WORDS": "holdfast queue pause cr", "COMP_CWORD": "3", "_HOLDFAST_COMPLETE": "bash_complete"}
    assert run(**asked) == (0, "\n", "")
    for queue in ("crawl", "mail"):
        run("job", "enqueue", "index", "--queue", queue)
    assert run(**asked).out == "plain,crawl\n"
    assert run(**{**asked, "HOLDFAST_URL": "nonsense"}) == (0, "\n", "")
    run("limit", "set", "openai", "--concurrent", "1")
    words = {"COMP_WORDS": "holdfast job enqueue ask --limit o", "COMP_CWORD": "5"}
    assert run(**{**asked, **words}).out == "plain,openai\n"


def test_shell_completion_knows_file_arguments(run: Run) -> None:
    for words in ("holdfast job enqueue --lines ", "holdfast job list --key "):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split())), "_HOLDFAST_COMPLETE": "bash_complete"}
        assert run(**asked).out == "file,\n"


@pytest.mark.parametrize(("typed", "instead"), sorted(GONE.items()))
def test_what_is_gone_is_refused_with_what_to_use_instead(run: Run, typed: str, instead: str) -> None:
    done = run(*typed.split(), "--json")
    assert (done.code, done.answer["error_code"], done.answer["suggested_action"]) == (2, "usage", instead)
    assert done.answer["error"].startswith("No such option" if "--" in typed else "No such command")
    assert run(*typed.split()).err.endswith(f"\nTry: {instead}\n")


def test_migrate_updates_the_ledger(store_url: str, run: Run) -> None:
    first = run("migrate", "--db", store_url, "--json").answer["data"]
    assert first["found"] == 0
    assert first["applied"]
    again = run("migrate", "--db", store_url)
    assert again.out == f"The ledger has schema {first['version']}, the newest that this Holdfast knows.\n"


def test_help_names_every_noun(run: Run) -> None:
    said = run("--help").out
    nouns = (
        "beat",
        "demo",
        "dlq",
        "doctor",
        "events",
        "explain",
        "gate",
        "job",
        "queue",
        "sink",
        "supervise",
        "sweep",
        "top",
        "worker",
    )
    assert [noun for noun in nouns if f"\n  {noun} " not in said] == []


# Answers


@pytest.mark.parametrize(
    "arguments",
    [["worker", "list"], ["dlq", "list"], ["dlq", "replay", "--all"], ["sink", "list"], ["supervise", "--list"], ["sweep"]],
    ids=" ".join,
)
def test_a_success_as_json(run: Run, arguments: list[str]) -> None:
    assert run("migrate").code == 0
    done = run(*arguments, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.answer.keys() == {"schema_version", "success", "data"}
    assert (done.answer["schema_version"], done.answer["success"]) == ("v1", True)
    assert run(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "code", "error_code"),
    [
        (["dlq", "get", "1"], 3, "no_ledger"),
        (["dlq", "discard", "1"], 1, "not_found"),
        (["sink", "revive", "hook"], 1, "not_found"),
        (["sweep", "--db", "sqlite:///no/such/folder.db"], 1, "validation_error"),
        (["sweep", "--db", "postgresql://127.0.0.1:1/none"], 3, "unavailable"),
        (["sweep", "--limit", "none"], 2, "usage"),
        (["beat", "--progress", "nan"], 2, "usage"),
        (["nothing"], 2, "usage"),
        (["dlq", "bury"], 2, "usage"),
    ],
)
def test_a_failure_as_json(run: Run, arguments: list[str], code: int, error_code: str) -> None:
    done = run(*arguments, "--json")
    assert (done.code, done.err) == (code, "")
    assert done.answer.keys() == {
        "schema_version", "success", "error", "error_code", "error_context", "suggested_action"
    }  # fmt: skip
    assert (done.answer["success"], done.answer["error_code"]) == (False, error_code)
    plain = run(*arguments)
    assert (plain.code, plain.out) == (code, "")
    assert plain.err and "Traceback" not in plain.err


# Other commands


def test_a_sweep_prints_its_counts(store_url: str, run: Run) -> None:
    with holdfast.open(store_url, clock=ManualClock(datetime.now(UTC) - timedelta(hours=1))) as ledger:
        ledger.enqueue("index", policy={"heartbeat_interval": "1s", "missed_beats_max": 1, "lease_ttl": "1s"})
        ledger.claim("ada")
    # After the start of a server every holder has a fresh interval.
    found = wait_until(lambda: run("sweep", "--db", store_url, "--json").answer["data"]["events"])
    assert found == {"stalled": 1, "requeued": 1}
    assert run("sweep", "--db", store_url).out == "Swept: nothing was due.\n"


def test_a_dead_sink_is_revived_skipped_and_dropped(store_url: str, run: Run) -> None:
    with holdfast.open(store_url) as ledger:
        job = ledger.enqueue("index")
        ledger.outbox.add("hook", from_beginning=True)

        def fail() -> None:
            ledger.outbox.save(SinkPosition("hook", 0, 9, dead_at=ledger.outbox.now(), last_error="no \x1b route"), 0)

        fail()
        listed = run("sink", "list", "--db", store_url).out
        assert "dead" in listed and "no \\x1b route" in listed
        assert run("sink", "revive", "hook", "--db", store_url, "--json").answer["data"]["sink"]["failures"] == 0
        refused = run("sink", "skip", "hook", "--db", store_url)
        assert (refused.code, "does not fail at any event" in refused.err) == (1, True)
        fail()
        assert run("sink", "skip", "hook", "--db", store_url).code == 0
        assert ledger.sinks()[0].pos == ledger.events(job.id)[0].pos
        assert run("sink", "drop", "hook", "--db", store_url).out == "Sink hook is deleted.\n"
        assert ledger.sinks() == []
