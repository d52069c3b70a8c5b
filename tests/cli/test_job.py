"""`holdfast job` and `holdfast queue`: jobs are enqueued, shown, cancelled and replayed."""

import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from tests.cli.conftest import Commands, Done, Run

NASTY = "red \x1b[31m, C1 \x9b1m, turned \u202e"


class JobCommands(Commands):
    """A ledger and the command line."""

    def __init__(self, ledger: Ledger, url: str, run: Run) -> None:
        super().__init__(run, url)
        self.ledger = ledger

    def __call__(self, *arguments: object) -> Done:
        done = super().__call__(*arguments)
        assert not {"\x1b", "\x9b", "\u202e"} & set(done.out + done.err)
        return done

    def said(self, *arguments: object) -> Any:
        done = self(*arguments, "--json")
        assert (done.code, done.err) == (0, "")
        return done.answer["data"]

    def refused(self, *arguments: object) -> tuple[int, str, Any]:
        done = self(*arguments, "--json")
        return done.code, done.answer["error_code"], done.answer["error_context"]

    def held(self, *, kind: str = "index") -> Any:
        [job] = self.ledger.claim("ada", kinds=[kind], start=True)
        return job.fence


@pytest.fixture
def jobs_cli(store_url: str, run: Run) -> Iterator[JobCommands]:
    with holdfast.open(store_url) as ledger:
        yield JobCommands(ledger, store_url, run)


@pytest.fixture
def here(folder: Path, run: Run) -> Iterator[JobCommands]:
    """The same on SQLite only."""
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        yield JobCommands(ledger, f"sqlite:///{folder}/holdfast.db", run)


def test_a_job_is_enqueued_shown_cancelled_and_replayed(jobs_cli: JobCommands) -> None:
    made = jobs_cli.said("job", "enqueue", "index", "--queue", "crawl", "--args", '{"url": "a"}', "--priority", "5")
    id_ = made["job"]["id"]
    assert (made["is_new"], made["job"]["status"], made["job"]["args"]) == (True, "queued", {"url": "a"})
    assert jobs_cli.said("job", "get", id_)["job"] == made["job"]
    assert [job["id"] for job in jobs_cli.said("job", "list", "--queue", "crawl", "--status", "queued")["jobs"]] == [id_]

    assert jobs_cli("job", "cancel", id_, "--reason", "a typo").out == f"Job {id_} is cancelled.\n"
    assert jobs_cli.ledger.get(id_).cancel_reason == "a typo"
    [again] = jobs_cli.said("job", "replay", id_)["replayed"]
    assert (again["job_id"], again["is_new"]) == (id_, True)
    assert [job["id"] for job in jobs_cli.said("job", "list", "--replay-of", id_)["jobs"]] == [again["replayed_as"]]
    events = jobs_cli.said("job", "events", id_)["events"]
    assert [event["type"] for event in events] == ["enqueued", "cancelled"]
    assert [event["rev"] for event in jobs_cli.said("job", "events", id_, "--type", "cancelled")["events"]] == [2]


def test_a_repeated_cancel_reports_that_nothing_has_changed(jobs_cli: JobCommands) -> None:
    queued = jobs_cli.ledger.enqueue("index").id
    assert jobs_cli("job", "cancel", queued).out == f"Job {queued} is cancelled.\n"
    assert jobs_cli("job", "cancel", queued).out == f"Job {queued} was cancelled already: nothing has changed.\n"
    [again] = jobs_cli.said("job", "cancel", queued)["cancelled"]
    assert (again["is_over"], again["changed"]) == (True, False)
    running = jobs_cli.ledger.enqueue("index").id
    jobs_cli.held()
    [asked] = jobs_cli.said("job", "cancel", running)["cancelled"]
    assert (asked["is_over"], asked["changed"]) == (False, True)
    assert "asked to stop already: nothing has changed" in jobs_cli("job", "cancel", running).out


def test_a_succeeded_job_is_not_replayed_and_the_message_explains_replay(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index").id
    here.ledger.complete(here.held(), 1)
    done = here("job", "replay", id_)
    assert done.code == 1
    assert "have failed, were cancelled or were dead-lettered" in done.err and "enqueue a new job" in done.err
    assert "holdfast job get --db " in here("job", "cancel", id_).err


def test_a_job_named_by_id_is_not_replayed_twice(here: JobCommands) -> None:
    job = here.ledger.enqueue("index").id
    here.ledger.cancel(job)
    [made] = here.said("job", "replay", job, "--request-id", "r-1")["replayed"]
    fence = here.held()
    here.ledger.complete(fence)

    assert f"job {job} was replayed before, as {fence.job_id} (succeeded): give --again" in here("job", "replay", job).out
    assert here.said("job", "replay", job)["skipped"] == 1
    assert here.said("job", "replay", job, "--request-id", "r-1")["replayed"] == [made], "the same request, sent again"
    [again] = here.said("job", "replay", job, "--again")["replayed"]
    assert again["replayed_as"] > fence.job_id


def test_advice_is_printed_once(here: JobCommands, folder: Path) -> None:
    for words in (["task", "start", "--id", 1], ["job", "replay", 99], ["job", "frobnicate"]):
        assert here(*words).err.count("Try") == 1, words
    assert here.run("job", "list", "--db", "holdfast.db").err.count("Try") == 1


def test_a_dedupe_key_finds_the_job_that_has_it(here: JobCommands) -> None:
    first = here.said("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "k")
    second = here.said("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "k")
    assert (second["job"]["id"], second["is_new"]) == (first["job"]["id"], False)
    assert (
        here("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "k").out
        == f"Job {first['job']['id']} was there already and is queued.\n"
    )
    for_ever = ("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "e", "--dedupe", "forever")
    here.ledger.cancel(here.said(*for_ever)["job"]["id"])
    assert here(*for_ever).out.endswith("was there already and is cancelled. It keeps its key for ever.\n")


def test_a_call_replaces_or_postpones_the_job_that_has_its_key(here: JobCommands) -> None:
    call = ("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "k")
    first = here.said(*call, "--delay", "1h", "--on-duplicate", "postpone", "--postpone-max", "1h")["job"]
    replaced = here(*call, "--args", '{"n": 2}', "--on-duplicate", "replace").out
    assert replaced == f"Job {first['id']} was there already, and has these arguments now.\n"
    postponed = here(*call, "--args", '{"n": 3}', "--delay", "2h", "--on-duplicate", "postpone").out
    assert postponed.startswith(f"Job {first['id']} was there already, and has these arguments now, available at ")
    found = here.said("job", "get", first["id"])["job"]
    assert (found["args"], found["available_at"] > first["available_at"]) == ({"n": 3}, True)
    events = here("job", "events", first["id"]).out
    assert "replaced" in events and "postponed" in events and "a call with the same dedupe key" in events


def test_a_key_is_kept_for_a_time(here: JobCommands) -> None:
    call = ("job", "enqueue", "index", "--queue", "default", "--dedupe-key", "k", "--dedupe-for", "1h")
    first = here.said(*call)["job"]
    here.ledger.cancel(first["id"])
    told = here(*call, "--on-duplicate", "replace").out
    assert told == f"Job {first['id']} was there already and is cancelled. It keeps its key, and nothing is changed.\n"
    assert f"was there already and is cancelled. It keeps its key until {first['dedupe_until'][:4]}" in here(*call).out
    assert "  key until " in here("job", "get", first["id"]).out
    assert here.refused("job", "enqueue", "index", "--queue", "default", "--dedupe-for", "1h")[:2] == (1, "validation_error")


def test_failed_jobs_are_listed_and_discarded(jobs_cli: JobCommands) -> None:
    made = jobs_cli.ledger.enqueue("index")
    jobs_cli.ledger.fail(jobs_cli.held(), "no page", retryable=False)
    jobs_cli.ledger.enqueue("index")
    assert [job["id"] for job in jobs_cli.said("job", "list", "--failed")["jobs"]] == [made.id]
    assert jobs_cli("dlq", "list").out == "There are no dead letters.\n  There are failed jobs: holdfast job list --failed\n"
    found = jobs_cli("doctor")
    assert "1 failed job, neither replayed nor discarded" in found.out
    assert "Look at them (holdfast job list" in found.out
    assert jobs_cli("job", "discard", made.id, "--reason", "a typo").out == f"1 discarded: {made.id}.\n"
    assert jobs_cli.ledger.events(made.id)[-1].reason == "a typo"
    assert "there are no failed jobs" in jobs_cli("doctor").out
    live = jobs_cli.ledger.enqueue("other")
    code, error, _ = jobs_cli.refused("job", "discard", live.id)
    assert (code, error) == (1, "invalid_transition")


def test_dead_letters_are_among_the_failed_jobs_with_their_errors(here: JobCommands) -> None:
    failed, dead, _ = (here.ledger.enqueue("index").id for _ in range(3))
    here.ledger.fail(here.held(), "no page", retryable=False)
    here.ledger.dead_letter(dead, reason_code="timeout", error={"type": "TimeoutError", "message": "too slow " * 50})
    listed = here("job", "list", "--failed").out
    assert "failed: no page" in listed
    assert "dead_lettered: TimeoutError: too slow" in listed
    assert max(map(len, listed.splitlines())) < 160
    assert [job["id"] for job in here.said("job", "list", "--failed")["jobs"]] == [dead, failed]
    here.said("job", "discard", failed)
    assert "there are no failed jobs; there are dead letters, see below" in here("doctor").out


def test_jobs_of_an_owner_and_jobs_for_later_are_listed(here: JobCommands) -> None:
    held, later, due = here.ledger.enqueue("index"), here.ledger.enqueue("index", delay=90_000), here.ledger.enqueue("index")
    waits = here.ledger.enqueue("index", depends_on=[due.id])
    here.held()
    assert [job["id"] for job in here.said("job", "list", "--owner", "ada")["jobs"]] == [held.id]
    assert here.said("job", "list", "--owner", "bob")["jobs"] == []
    assert f"queued, from {later.available_at:%Y-%m-%d %H:%M:%S}Z" in here("job", "list").out
    assert [job["id"] for job in here.said("job", "list", "--scheduled")["jobs"]] == [later.id]
    assert waits.id not in (later.id, due.id)
    assert here.said("job", "list", "--scheduled", "--kind", "other")["jobs"] == []
    page = here.said("job", "list", "--scheduled", "--limit", "1")
    assert here.said("job", "list", "--scheduled", "--after", page["next_after"])["jobs"] == []
    assert here("job", "list", "--scheduled", "--failed").code == 2


def test_all_queued_jobs_that_filters_choose_are_cancelled(jobs_cli: JobCommands) -> None:
    running = jobs_cli.ledger.enqueue("index", queue="crawl").id
    jobs_cli.ledger.claim("ada", queues=["crawl"], start=True)
    first = jobs_cli.ledger.enqueue("index", queue="crawl").id
    after = jobs_cli.ledger.enqueue("index", queue="crawl", depends_on=[first]).id
    mail, other = jobs_cli.ledger.enqueue("mail", queue="crawl").id, jobs_cli.ledger.enqueue("index", queue="other").id

    dry = jobs_cli("job", "cancel", "--all", "--queue", "crawl", "--dry-run")
    assert dry.out == "3 jobs would be cancelled. Nothing was changed.\n"
    assert jobs_cli.said("job", "cancel", "--all", "--dry-run")["count"] == 4
    assert jobs_cli("job", "cancel", "--all", "--queue", "crawl", "--limit", 1).out == f"1 cancelled: {mail}.\n"
    done = jobs_cli.said("job", "cancel", "--all", "--queue", "crawl", "--kind", "index", "--reason", "not needed")
    assert [one["job_id"] for one in done["cancelled"]] == [after, first]
    assert (done["count"], done["skipped"], done["dry_run"]) == (2, 0, False)
    assert jobs_cli.ledger.events(first)[-1].reason == "not needed"
    assert jobs_cli("job", "cancel", "--all", "--queue", "crawl").out == "There are no such jobs.\n"
    assert jobs_cli("job", "cancel", "--all", "--status", "running").out == f"1 asked to stop: {running}.\n"
    again = jobs_cli.said("job", "cancel", "--all", "--status", "running")["cancelled"]
    assert [(one["job_id"], one["changed"]) for one in again] == [(running, False)]
    assert jobs_cli("job", "cancel", "--all", "--status", "running", "--hard").out == f"1 cancelled: {running}.\n"
    assert jobs_cli.ledger.get(other).status == "queued"


def test_a_dependent_of_a_failed_job_shows_the_failed_job(here: JobCommands) -> None:
    first = here.ledger.enqueue("index").id
    ended = here.said("job", "enqueue", "other", "--queue", "default", "--depends-on", first)["job"]["id"]
    waits = here.said("job", "enqueue", "other", "--queue", "default", "--depends-on", first, "--on-dependency-failure", "wait")[
        "job"
    ]["id"]
    assert here.said("job", "get", waits)["waits_in_vain_for"] == []
    here.ledger.fail(here.held(), "no page", retryable=False)
    assert here.said("job", "get", waits)["waits_in_vain_for"] == [first]
    assert f"{first} (failed) will not succeed: replay it, or cancel this job" in here("job", "get", waits).out
    assert f"{first} will not succeed" in here("explain", waits).out
    got = here("job", "get", ended).out
    assert f"dependency {first} failed" in got
    assert "never: it ended while it waited for others" in got
    assert f"It depends on job {first} (failed)." in here("explain", ended).out


def test_a_job_goes_to_the_queue_that_its_kind_is_served_in(here: JobCommands, folder: Path) -> None:
    here.ledger.declare_policy("index", queue="crawl")
    assert here.said("job", "enqueue", "index")["job"]["queue"] == "crawl"
    assert here.said("job", "enqueue", "index", "--queue", "other")["job"]["queue"] == "other"
    (folder / "jobs.jsonl").write_text('{"kind": "index"}\n{"kind": "index", "queue": "other"}\n')
    here.said("job", "enqueue", "--lines", "jobs.jsonl")
    assert [job.queue for job in here.ledger.list()] == ["crawl", "other", "crawl", "other"]


def test_a_job_has_the_limits_and_labels_that_its_handler_declares(here: JobCommands, folder: Path) -> None:
    here.ledger.set_limit("openai", concurrent=5)
    here.ledger.declare_policy("ask", queue="ai", limits={"openai": 2}, requires=["gpu"])

    def enqueued(*options: str) -> tuple[dict[str, int], tuple[str, ...]]:
        job = here.ledger.get(here.said("job", "enqueue", "ask", *options)["job"]["id"])
        return dict(job.limits), tuple(job.requires)

    assert enqueued() == ({"openai": 2}, ("gpu",))
    assert enqueued("--queue", "ai") == ({"openai": 2}, ("gpu",))
    assert enqueued("--limit", "openai=1") == ({"openai": 1}, ("gpu",))
    assert enqueued("--requires", "tpu") == ({"openai": 2}, ("tpu",))
    assert enqueued("--queue", "other") == ({}, ())
    (folder / "jobs.jsonl").write_text('{"kind": "ask"}\n{"kind": "ask", "limits": []}\n')
    here.said("job", "enqueue", "--lines", "jobs.jsonl")
    assert [dict(job.limits) for job in here.ledger.list()][-2:] == [{"openai": 2}, {}]
    done = here("job", "enqueue", "ask")
    assert "Taken from its handler: limits openai and labels gpu." in done.out + done.err
    done = here("job", "enqueue", "ask", "--limit", "openai")
    assert "Taken from its handler: labels gpu." in done.out + done.err
    assert here.said("schedule", "add", "s", "ask", "--every", "1h")["schedule"]["options"]["limits"] == {"openai": 2}


def test_a_kind_that_no_worker_has_declared_needs_a_queue(here: JobCommands) -> None:
    here.ledger.declare_policy("index", queue="crawl")
    code, error_code, context = here.refused("job", "enqueue", "indx")
    assert (code, error_code, context) == (1, "not_found", {"kind": "indx"})
    done = here("job", "enqueue", "indx")
    assert "declared kinds: index" in done.err
    assert "--queue" in done.err
    assert here.ledger.list() == []
    assert "Did you mean index? Start a worker" in done.err
    assert "If a worker was started just now, try again in a second." in done.err
    assert here("job", "enqueue", "indx", "--queue", "crawl").out == "Job 1 is queued in crawl.\n"
    for letter in "abcdef":
        here.ledger.declare_policy(letter * 9, queue="crawl")
    done = here("job", "enqueue", "zzz")
    assert " … and 2 more" in done.err
    assert "Did you mean" not in done.err


def test_arguments_as_other_tools_take_them_get_a_hint(here: JobCommands) -> None:
    done = here("job", "enqueue", "index", "--queue", "crawl", "--args", "name=x")
    assert done.code == 2
    assert """Write --args '{"name": "x"}'""" in done.err
    done = here("job", "enqueue", "index", "--queue", "crawl", "--policy", "attempts_max=3")
    assert """Write --policy '{"attempts_max": 3}'""" in done.err


def test_a_retry_and_a_stall_have_different_types(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index").id
    here.ledger.fail(here.held(), "busy")
    assert [event["reason"] for event in here.said("job", "events", id_, "--type", "retried")["events"]] == ["TRANSIENT_ERROR"]
    assert here.said("job", "events", id_, "--type", "stalled")["events"] == []
    assert here("job", "events", id_, "--type", "nosuch").code == 2


def test_several_jobs_are_enqueued_together_or_not_at_all(here: JobCommands, folder: Path) -> None:
    lines = [{"kind": "index", "args": {"n": n}, "queue": "crawl"} for n in range(3)]
    (folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    said = here.said("job", "enqueue", "--lines", "jobs.jsonl")
    assert (len(said["job_ids"]), said["new"]) == (3, 3)
    for broken in ("[1]\n", '{"kind": "", "queue": "crawl"}\n', '{"kind": "other"}\n', '{"queue": "crawl"}\n', "{"):
        (folder / "jobs.jsonl").write_text('{"kind": "index", "queue": "crawl"}\n' + broken)
        assert here("job", "enqueue", "--lines", "jobs.jsonl").code in (1, 2)
    assert len(here.ledger.list()) == 3


@pytest.mark.parametrize(
    ("verb", "options", "word"),
    [
        ("cancel", [], "cancelled"),
        ("move", ["--queue", "other"], "moved"),
        ("reprioritise", ["--priority", "3"], "reprioritised"),
        ("reschedule", ["--delay", "2h"], "rescheduled"),
        ("replay", [], "replayed"),
        ("dead-letter", ["--reason-code", "timeout"], "dead-lettered"),
    ],
)
def test_each_job_that_was_refused_has_a_line(here: JobCommands, verb: str, options: list[str], word: str) -> None:
    ended, wanted = here.ledger.enqueue("index").id, here.ledger.enqueue("index").id
    here.ledger.complete(here.held())
    if verb == "replay":
        here.ledger.cancel(wanted)
    done = here("job", verb, ended, 999, wanted, *options)
    assert done.code == 1
    lines = done.out.splitlines()
    assert f"  {ended}: not {word}, it has succeeded" in lines
    assert "  999: there is no such job" in lines
    assert any(f"ob {wanted} is" in line for line in lines), "what was done is said, too"
    assert done.err.startswith(f"Failed: 2 of 3 jobs were not {word}\n")
    code, _, context = here.refused("job", verb, ended, 999, *options)
    assert (code, [one["job_id"] for one in context["refused"]]) == (1, [ended, 999])


@pytest.mark.parametrize(
    "arguments",
    [
        ["enqueue"],
        ["enqueue", "index", "--lines", "x"],
        ["enqueue", "--lines", "missing.jsonl"],
        ["enqueue", "index", "--queue", "default", "--args", "[1]"],
        ["enqueue", "index", "--queue", "default", "--args", "{"],
        ["enqueue", "index", "--queue", "default", "--args", "@missing.json"],
        ["enqueue", "index", "--queue", "default", "--args", "@deep.json"],
        ["enqueue", "--lines", "deep.json"],
        ["enqueue", "index", "--queue", "default", "--at", "tomorrow"],
        ["cancel", "1", "2", "--expected-rev", "1"],
        ["cancel"],
        ["cancel", "1", "--all"],
        ["cancel", "1", "--queue", "crawl"],
        ["cancel", "1", "--dry-run"],
        ["cancel", "--all", "--request-id", "r"],
        ["cancel", "--all", "--expected-rev", "1"],
        ["cancel", "--all", "--status", "succeeded"],
        ["get", "0"],
        ["list", "--status", "lost"],
        ["list", "--phase", "lost"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_reported(here: JobCommands, folder: Path, arguments: list[str]) -> None:
    (folder / "deep.json").write_text('{"a":' * 100_000)
    assert here.refused("job", *arguments)[:2] == (2, "usage")
    plain = here("job", *arguments)
    assert (plain.code, plain.out, "Traceback" in plain.err) == (2, "", False)


def test_a_wrong_expected_revision_is_refused(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index").id
    assert here.refused("job", "cancel", id_, "--expected-rev", 7)[:2] == (1, "conflict")
    assert here.said("job", "cancel", id_, "--expected-rev", 1)


def test_contents_of_a_job_are_escaped_for_the_terminal(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index", {"text": NASTY}, queue="default").id
    here.ledger.heartbeat(here.held(), stage="TASK", progress=3)
    assert "red \\x1b[31m" in here("job", "get", id_).out.replace("\\u001b", "\\x1b")
    assert "TASK 3" in here("job", "list").out


def test_an_operator_assists_a_job_by_command(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index", queue="default").id
    assert here.refused("job", "assist", id_)[:2] == (1, "invalid_transition")
    here.held()
    helped = here.said("job", "assist", id_)
    assert (helped["job_id"], helped["status"], helped["phase"]) == (id_, "running", "assisted")
    assert here("job", "unassist", id_).out == f"Job {id_} continues without help.\n"
    assert here("job", "assist", id_).out == f"An operator helps job {id_}.\n"
    actors = [event.actor for event in here.ledger.events(id_, types=["assist_started", "assist_ended"])]
    assert len(actors) == 3
    assert all(actor.startswith("operator:") for actor in actors)


def test_an_operator_gives_a_reason(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index", queue="default").id
    here.held()
    for verb in ("assist", "unassist"):
        here.said("job", verb, id_, "--reason", f"{verb} it")
    here.said("job", "cancel", id_, "--hard", "--reason", "cancel it")
    again = here.said("job", "replay", id_, "--reason", "replay it")["replayed"][0]["replayed_as"]
    reasons = [event.reason for job in (id_, again) for event in here.ledger.events(job) if event.reason]
    assert reasons == ["assist it", "unassist it", "cancel it", "replay it"]


def test_a_failed_job_shows_its_stage_and_reason(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index", policy={"attempts_max": 1, "on_exhausted": "fail"}).id
    fence = here.ledger.claim_job(id_, "robot-1").fence
    here.ledger.start(fence)
    here.ledger.fail(fence, "slow", failure_stage="fetch", reason_code="timeout")
    job = here.said("job", "get", id_)["job"]
    assert (job["status"], job["failure_stage"], job["reason_code"]) == ("failed", "fetch", "timeout")
    shown = here("job", "get", id_).out
    assert "failed in" in shown and "fetch" in shown and "timeout" in shown


def test_a_retry_does_not_read_as_a_stall(jobs_cli: JobCommands) -> None:
    id_ = jobs_cli.ledger.enqueue("index", policy={"attempts_max": 2, "backoff_base": 0}).id
    for number in range(2):
        jobs_cli.ledger.fail(
            jobs_cli.held(), {"type": "TransientError", "message": f"the server said 50{number}", "traceback": "x" * 4_000}
        )
        if not number:
            assert "queued, retried: TransientError: the server said 500" in jobs_cli("job", "list").out
            assert "stall" not in jobs_cli("job", "get", id_).out.lower()
    for command in ("job events", "dlq get", "task get --id", "events tail --once --job"):
        shown = jobs_cli(*command.split(), id_)
        assert shown.code == 0, command
        [retried] = [line for line in shown.out.splitlines() if "retried" in line]
        assert retried.endswith("TransientError: the server said 500"), command
        assert "stalled" not in shown.out and "TRANSIENT_ERROR" not in shown.out, command
        assert "exhausted_retries: TransientError: the server said 501" in shown.out, command
    listed = jobs_cli("job", "get", id_).out
    assert "retried: TransientError: the server said 500" in listed
    assert "dead_lettered: exhausted_retries: TransientError: the server said 501" in listed
    events = jobs_cli.said("job", "events", id_)["events"]
    assert [(event["type"], event["reason"]) for event in events][3] == ("stalled", "TRANSIENT_ERROR")


def test_jobs_are_listed_by_phase(here: JobCommands) -> None:
    ids = [job.id for job in here.ledger.enqueue_many([{"kind": "index"}] * 3)]
    for id_ in ids[:2]:
        fence = here.ledger.claim_job(id_, "robot-1").fence
        here.ledger.start(fence)
    here.ledger.assist(ids[0])
    assert [job["id"] for job in here.said("job", "list", "--phase", "assisted")["jobs"]] == ids[:1]
    both = here.said("job", "list", "--phase", "assisted", "--phase", "executing")["jobs"]
    assert [job["id"] for job in both] == ids[1::-1]
    assert [task["id"] for task in here.said("task", "list", "--phase", "executing")["tasks"]] == ids[1:2]


def test_nothing_is_claimed_from_a_paused_queue(jobs_cli: JobCommands) -> None:
    jobs_cli.ledger.enqueue("index", queue="crawl")
    assert jobs_cli("queue", "pause", "crawl").out == "Queue crawl is paused: nothing more is claimed from it.\n"
    assert jobs_cli.ledger.claim("ada", queues=["crawl"]) == []
    [one] = jobs_cli.said("queue", "list")["queues"]
    assert (one["name"], one["counts"]["queued"], one["paused_at"] is None) == ("crawl", 1, False)
    assert "paused" in jobs_cli("queue", "list").out
    assert "has no jobs" in jobs_cli("queue", "pause", "carwl").err
    assert jobs_cli.said("queue", "unpause", "crawl")["queue"] == {"name": "crawl", "paused_at": None}
    assert len(jobs_cli.ledger.claim("ada", queues=["crawl"])) == 1


def test_empty_lists_are_reported(here: JobCommands) -> None:
    assert here("queue", "list").out == "There are no queues.\n"
    assert here("job", "list").out == "There are no such jobs.\n"


def test_the_dependencies_of_a_job_are_shown(jobs_cli: JobCommands) -> None:
    jobs_cli("job", "enqueue", "first", "--queue", "default")
    jobs_cli("job", "enqueue", "second", "--queue", "default")
    waiting = jobs_cli("job", "enqueue", "third", "--queue", "default", "--depends-on", 1, "--depends-on", 2)
    assert waiting.out == "Job 3 is queued in default; it waits for 1, 2.\n"
    assert "once 1, 2 have succeeded" in jobs_cli("job", "get", 3).out
    assert "9999" not in jobs_cli("job", "get", 3).out
    assert "queued, waits for 1, 2" in jobs_cli("job", "list").out
    assert [job["id"] for job in jobs_cli.said("job", "list", "--waiting")["jobs"]] == [3]
    assert (
        "is not a valid job id, a whole number"
        in jobs_cli("job", "enqueue", "k", "--queue", "default", "--depends-on", "1,2").err
    )


def test_an_unknown_policy_field_is_answered_with_the_known_ones(jobs_cli: JobCommands) -> None:
    assert "attempts_max" in jobs_cli("job", "enqueue", "k", "--queue", "default", "--policy", '{"attempts": 3}').err


def test_the_list_shows_the_newest_jobs_first_and_the_counts(jobs_cli: JobCommands) -> None:
    made = [jobs_cli.ledger.enqueue("index", {"page": number}).id for number in range(3)]
    jobs_cli.ledger.enqueue("note", queue="other")
    jobs_cli.ledger.complete(jobs_cli.held(), "indexed")
    first = jobs_cli.said("job", "list", "--queue", "default", "--limit", "2")
    assert [job["id"] for job in first["jobs"]] == [made[2], made[1]]
    assert first["counts"] == {"queued": 2, "succeeded": 1}
    rest = jobs_cli.said("job", "list", "--queue", "default", "--after", first["next_after"])
    assert [job["id"] for job in rest["jobs"]] == [made[0]]
    assert [job["id"] for job in jobs_cli.said("job", "list", "--order", "oldest", "--limit", "1")["jobs"]] == [made[0]]
    assert "  4 jobs in all: 3 queued, 1 succeeded" in jobs_cli("job", "list").out
    assert [job["id"] for job in jobs_cli.said("job", "list", "--text", '"page":1', "--since", "1h")["jobs"]] == [made[1]]
    assert jobs_cli.said("job", "list", "--until", "1h")["jobs"] == []


def test_a_finished_job_shows_its_last_worker_and_its_duration(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index").id
    here.ledger.complete(here.held(), None)
    out = here("job", "get", id_).out
    assert "  done by      ada\n" in out
    assert re.search(r"  took         \d+\.\d{3}s\n", out)
    called_off = here.ledger.enqueue("index").id
    here.ledger.cancel(called_off)
    assert "took" not in here("job", "get", called_off).out


def test_queued_jobs_are_moved_reprioritised_and_rescheduled(jobs_cli: JobCommands) -> None:
    first, second = jobs_cli.ledger.enqueue("index").id, jobs_cli.ledger.enqueue("index").id
    moved = jobs_cli.said("job", "move", first, second, "--queue", "fetch")["jobs"]
    assert [(job["job_id"], job["queue"]) for job in moved] == [(first, "fetch"), (second, "fetch")]
    assert jobs_cli("job", "reprioritise", first, "--priority", 5).out.startswith(f"Job {first} is queued in fetch, priority 5, ")
    later = jobs_cli.said("job", "reschedule", first, "--delay", "1h")["jobs"][0]["available_at"]
    assert later > jobs_cli.said("job", "reschedule", first)["jobs"][0]["available_at"]
    types = [event["type"] for event in jobs_cli.said("job", "events", first)["events"]]
    assert types == ["enqueued", "moved", "reprioritised", "rescheduled", "rescheduled"]
    jobs_cli.said("job", "move", first, second, "--for-worker", "robot-7", "--reason", "robot-8 is broken")
    assert [jobs_cli.ledger.get(id_).for_worker for id_ in (first, second)] == ["robot-7", "robot-7"]
    assert "to the worker robot-7" in jobs_cli("job", "events", first).out
    moved = jobs_cli("job", "move", first, "--for-worker", "robot-9").out
    assert moved.startswith(f"Job {first} is queued in fetch for the worker robot-9, priority 5, ")
    jobs_cli.said("job", "move", second, "--any-worker", "--queue", "other")
    assert (jobs_cli.ledger.get(second).for_worker, jobs_cli.ledger.get(second).queue) == (None, "other")
    assert jobs_cli.refused("job", "move", second)[:2] == (2, "usage")
    assert jobs_cli.refused("job", "move", second, "--any-worker", "--for-worker", "w")[:2] == (2, "usage")
    jobs_cli.ledger.cancel(second)
    code, error, _ = jobs_cli.refused("job", "move", second, "--queue", "other")
    assert (code, error) == (1, "invalid_transition")


def test_the_command_that_explain_gives_works(here: JobCommands) -> None:
    id_ = here.ledger.enqueue("index", queue="wrong").id
    here.ledger.sign_in("w-1", body={"queues": ["fetch"], "kinds": ["index"]})
    found = here.said("explain", id_)
    assert "It is served in fetch." in found["text"]
    command = found["commands"][0]["command"]
    assert re.fullmatch(rf"holdfast job move --db \S+ {id_} --queue fetch", command)
    assert here.run(*command.split()[1:]).code == 0
    assert here.ledger.get(id_).queue == "fetch"
    assert here.said("explain", id_)["situation"] == "ready"


def test_a_request_id_is_drawn_for_each_command(here: JobCommands) -> None:
    made = here("job", "enqueue", "index", "--queue", "default", "--json").answer
    assert here.ledger.events(made["data"]["job"]["id"])[0].request_id == made["request_id"]
    ids = [here.ledger.enqueue("index").id for _ in range(3)]
    one = here("job", "cancel", ids[0], "--json").answer
    assert here.ledger.events(ids[0])[-1].request_id == one["request_id"]
    assert here("job", "cancel", ids[0], "--request-id", one["request_id"], "--json").answer == one
    several = here("job", "cancel", *ids[1:], "--json").answer
    assert {here.ledger.events(id_)[-1].request_id for id_ in ids[1:]} == {several["request_id"]}
    assert here("job", "cancel", *ids[1:], "--request-id", several["request_id"], "--json").answer == several
    here.ledger.enqueue("index")
    assert "request_id" not in here("job", "cancel", "--all", "--json").answer


def test_more_jobs_than_one_batch_are_changed_with_one_command(here: JobCommands) -> None:
    ids = [job.id for job in here.ledger.enqueue_many([{"kind": "index"}] * 450)]
    said = here.said("job", "cancel", *ids, "--request-id", "r")
    assert [job["job_id"] for job in said["cancelled"]] == ids and all(job["changed"] for job in said["cancelled"])
    requests = [here.ledger.events(ids[place])[-1].request_id for place in (0, 199, 200, 400)]
    assert requests == ["r", "r", "r.1", "r.2"]
    assert here.said("job", "cancel", *ids, "--request-id", "r") == said
    assert len(here.said("job", "replay", *ids)["replayed"]) == 450
    assert here.said("job", "cancel", "--all", "--limit", 401)["count"] == 401


def test_the_ledger_may_be_named_before_the_noun(here: JobCommands, folder: Path) -> None:
    id_ = here.ledger.enqueue("index", queue="only here").id
    for words in (
        ["--db", here.url, "job", "list"],
        ["job", "--db", here.url, "list"],
        ["--db", "sqlite:///another.db", "job", "list", "--db", here.url],
    ):
        answer = here.run(*words, "--json").answer
        assert [job["id"] for job in answer["data"]["jobs"]] == [id_]
    assert not (folder / "another.db").exists()
    assert f"--db {here.url}" in here.run("--db", here.url, "explain", id_).out


def test_a_stalled_job_is_requeued(jobs_cli: JobCommands) -> None:
    job = jobs_cli.ledger.enqueue("index")
    fence = jobs_cli.held()
    code, error, _ = jobs_cli.refused("job", "requeue", job.id)
    assert (code, error) == (1, "invalid_transition")
    jobs_cli.ledger.stall(fence, reason="TRANSIENT_ERROR")
    [done] = jobs_cli.said("job", "requeue", job.id, "--reason", "the worker is gone", "--request-id", "r-1")["jobs"]
    assert (done["status"], done["rev"]) == ("queued", jobs_cli.ledger.get(job.id).rev)
    assert jobs_cli.said("job", "requeue", job.id, "--reason", "the worker is gone", "--request-id", "r-1")["jobs"] == [done]
    event = jobs_cli.ledger.events(job.id)[-1]
    assert (event.type, event.reason, event.actor) == ("requeued", "the worker is gone", f"system:{getpass.getuser()}")


def test_live_jobs_are_dead_lettered_with_a_reason_code(jobs_cli: JobCommands) -> None:
    first, second = jobs_cli.ledger.enqueue("index").id, jobs_cli.ledger.enqueue("index").id
    assert jobs_cli("job", "dead-letter", first).code == 2
    assert jobs_cli("job", "dead-letter", first, second, "--expected-rev", 1, "--reason-code", "timeout").code == 2
    assert jobs_cli.refused("job", "dead-letter", first, "--expected-rev", 7, "--reason-code", "timeout")[1] == "conflict"
    done = jobs_cli("job", "dead-letter", first, second, "--reason-code", "policy_violation", "--stage", "input")
    assert done.out == f"Job {first} is dead-lettered.\nJob {second} is dead-lettered.\n"
    letters = jobs_cli.said("dlq", "list")["dead_letters"]
    assert [(one["job_id"], one["reason_code"], one["failure_stage"]) for one in letters] == [
        (first, "policy_violation", "input"),
        (second, "policy_violation", "input"),
    ]
    assert jobs_cli.ledger.events(first)[-1].actor.partition(":")[0] == "operator"
