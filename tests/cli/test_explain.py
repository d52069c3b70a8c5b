"""`holdfast explain` and `holdfast doctor`: texts, and exit codes for scripts."""

import contextlib
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import click
import pytest

import holdfast
from holdfast import Ledger
from holdfast.cli import main
from holdfast.cli.command import remember_ledger, with_db_option
from holdfast.testing import ManualClock
from tests.cli.conftest import Run, Start
from tests.contract.builders import dead_lettered, queued, running
from tests.support.waiting import wait_until


def test_explain_prints_text_then_facts_then_commands(real: Ledger, store_url: str, run: Run) -> None:
    made = running(real)
    said = run("explain", made.id, "--db", store_url)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith(f"Job {made.id} (index_page, in queue ")
    assert [line for line in lines if line and not line.startswith(" ")][1:] == ["Facts", "Next", "Commands"]
    assert re.search(r"requeued  in \d+ s \(\d\d:\d\d:\d\dZ\) ", said.out)
    assert f"holdfast job cancel --db {shlex.quote(store_url)} {made.id}" in said.out


def test_a_missing_beat_is_shown_as_overdue(folder: Path, run: Run) -> None:
    url = f"sqlite:///{folder}/holdfast.db"
    with holdfast.open(url, clock=ManualClock(datetime.now(UTC) - timedelta(seconds=20))) as ledger:
        made = running(ledger)
    said = run("explain", made.id, "--db", url).out
    assert re.search(r"a beat renews the lease +was due 1\d s ago \(", said)
    assert re.search(r"requeued +in \d", said)


def test_explain_has_the_same_content_as_json(real: Ledger, store_url: str, run: Run) -> None:
    made = queued(real, queue="crawl")
    data = run("explain", made.id, "--json", HOLDFAST_URL=store_url).answer["data"]
    assert (data["status"], data["situation"], data["holder"]) == ("queued", "no_worker", None)
    assert data["why_not_running"]["code"] == "no_worker"
    assert data["commands"][0]["command"] == "holdfast worker run MODULE:APP --queues crawl"
    assert data["policy"]["attempts_max"] == 5


def test_contents_of_a_ledger_are_escaped_for_the_terminal(real: Ledger, store_url: str, run: Run) -> None:
    made = running(real)
    real.fail(made.fence, "\x1b[2J gone", retryable=False)
    said = run("explain", made.id, "--db", store_url)
    assert "\x1b" not in said.out and "gone" in said.out


def test_suggested_commands_exist(real: Ledger) -> None:
    """Each suggestion names an existing noun and verb."""
    context = click.Context(main)
    for command in real.explain(dead_lettered(real).id).commands:
        words = shlex.split(command.command)[1:]
        noun = main.get_command(context, words[0])
        assert isinstance(noun, click.Group)
        assert noun.get_command(context, words[1]) is not None


def test_doctor_finds_what_needs_an_action(real: Ledger, store_url: str, run: Run) -> None:
    well = run("doctor", "--db", store_url, "--json")
    if well.code == 0:
        assert well.answer["data"]["well"] and well.answer["data"]["ledger_id"] == real.id
    dead_lettered(real)
    done = run("doctor", "--db", store_url, "--json")
    assert (done.code, done.answer["error_code"]) == (1, "unwell")
    findings = {finding["code"]: finding for finding in done.answer["error_context"]["findings"]}
    assert findings["dead_letters"]["severity"] == "warning"
    assert "clock" in findings and "schema" in findings


def test_doctor_prints_text(run: Run, folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db"):
        pass
    (folder / "holdfast.db").chmod(0o600)
    said = run("doctor")
    assert (said.code, said.out.splitlines()[-1]) == (0, "No action is needed.")
    (folder / "holdfast.db").chmod(0o666)
    said = run("doctor")
    assert said.code == 1
    assert "→ Take that right from group and others: chmod go-w." in said.out
    assert (said.out.splitlines()[-1], said.err) == ("1 finding needs attention: permissions.", "")


def test_explain_and_doctor_read_the_details_of_real_workers(real: Ledger, store_url: str, run: Run, start: Start) -> None:
    held, other = real.enqueue("hold", queue="hold"), real.enqueue("unheard_of", queue="hold")
    later = real.enqueue("hold", queue="hold", delay=600)
    worker = start("worker", "run", "shop:app", "--name", "ada", SHOP_URL=store_url)
    assert worker.line() == f"began {held.id}"
    wait_until(lambda: real.workers() and real.explain(held.id).next[-1].by != "the next sweeper")
    found = real.explain(held.id)
    assert (found.situation, found.holder) == ("running", "ada")
    assert found.next[-1].by.startswith("the sweeper, ada")
    assert (real.explain(other.id).situation, real.explain(later.id).situation) == ("no_worker", "scheduled")
    done = run("doctor", "--db", store_url, "--json").answer
    findings = (done.get("data") or done["error_context"])["findings"]
    assert [f["words"] for f in findings if f["code"] == "workers"] != []


def test_doctor_reports_a_ledger_of_a_newer_version(run: Run, folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db"):
        pass
    with contextlib.closing(apsw.Connection(f"{folder}/holdfast.db")) as connection:
        connection.execute("INSERT INTO holdfast_schema VALUES (9999)")
    done = run("doctor", "--json")
    assert (done.code, done.answer["error_code"]) == (3, "schema_too_new")


def test_doctor_creates_no_ledger(run: Run, folder: Path) -> None:
    done = run("doctor", "--json")
    assert (done.code, done.answer["error_code"]) == (3, "no_ledger")
    assert not (folder / "holdfast.db").exists()


def test_doctor_reports_a_ledger_out_of_reach(run: Run) -> None:
    done = run("doctor", "--db", "postgresql://u:secret@127.0.0.1:1/jobs", "--json")
    assert (done.code, done.answer["error_code"]) == (3, "unavailable")
    assert "secret" not in done.out + done.err


def test_doctor_does_not_show_a_password(postgres_url: str, run: Run) -> None:
    joined = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{joined}password=secret&schema=doctors"
    nowhere = run("doctor", "--db", url, "--json")
    assert (nowhere.code, run("migrate", "--db", url).code) == (3, 0)
    done = run("doctor", "--db", url, "--json")
    assert "secret" not in nowhere.out + nowhere.err + done.out + done.err
    assert done.code in (0, 1)


def test_a_url_that_cannot_be_read_is_refused(run: Run) -> None:
    done = run("doctor", "--db", "postgresql://u:secret@[::1/jobs", "--json")
    assert (done.code, done.answer["error_code"]) == (3, "validation_error")
    assert "secret" not in done.out + done.err


def test_a_server_may_be_named_by_options_alone(postgres_url: str, run: Run) -> None:
    """A server that listens on a socket in a folder, for example."""
    parts = urlsplit(postgres_url)
    url = f"postgresql://{parts.path}?host={parts.hostname}&port={parts.port}&user={parts.username}&schema=by_options"
    done = run("doctor", "--db", url, "--json").answer
    assert (done.get("data") or done["error_context"])["url"] == url


def test_suggested_commands_name_the_ledger_of_the_call(run: Run, folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as near, holdfast.open(f"sqlite:///{folder}/far.db") as far:
        for ledger in (near, far):
            assert ledger.enqueue("k", queue="-q").id == 1
            ledger.pause("-q")
        suggested = run("explain", 1, "--db", "sqlite:///far.db", "--json").answer["data"]["commands"]
        findings = run("doctor", "--db", "sqlite:///far.db", "--json").answer["error_context"]["findings"]
        [action] = [finding["action"] for finding in findings if finding["code"] == "queue_paused"]
        assert action == "Unpause it: holdfast queue unpause --db sqlite:///far.db -- -q."
        for remedy in (suggested[0], suggested[-1]):
            assert run(*shlex.split(remedy["command"])[1:]).code == 0
        assert (near.get(1).status, far.get(1).status) == ("queued", "cancelled")
        far.enqueue("k", queue="-q")
        assert (len(near.claim("w", queues=["-q"])), len(far.claim("w", queues=["-q"]))) == (0, 1)


@pytest.mark.parametrize(
    ("text", "pasted"),
    [
        ("holdfast sweep", "holdfast sweep --db {}"),
        ("holdfast explain 7", "holdfast explain --db {} 7"),
        ("Look (holdfast dlq list), or holdfast sweep.", "Look (holdfast dlq list --db {}), or holdfast sweep --db {}."),
        ("holdfast queue unpause 'holdfast sweep'", "holdfast queue unpause --db {} 'holdfast sweep'"),
        ("a ledger's holdfast sweep, and its clock's", "a ledger's holdfast sweep --db {}, and its clock's"),
        ("holdfast supervise", "holdfast supervise --db {}"),
        ("holdfast schema x", "holdfast schema x"),
        ("holdfast dlq", "holdfast dlq"),
        ("no holdfast here", "no holdfast here"),
    ],
)
def test_suggested_commands_have_the_url_before_their_arguments(text: str, pasted: str) -> None:
    context = click.Context(main)
    db = context.command.params[0]
    remember_ledger(context, db, "postgresql://ann:secret@h/jobs?password=secret&schema=a")
    with context:
        assert with_db_option(text) == pasted.replace("{}", "'postgresql://ann@h/jobs?schema=a'")
    with click.Context(main) as another:
        remember_ledger(another, db, None)
        assert with_db_option(text) == text


def test_doctor_counts_findings_with_the_same_code(run: Run, folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        for queue in ("a", "b"):
            ledger.enqueue("index", queue=queue)
            ledger.pause(queue)
    (folder / "holdfast.db").chmod(0o600)
    assert run("doctor").out.splitlines()[-1] == "2 findings need attention: queue_paused (2)."
