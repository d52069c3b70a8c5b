"""`holdfast dlq`: from a dead letter to its replay, without control characters on the terminal."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.cli.conftest import Done, Run

NASTY = "red \x1b[31m, bell \x07, C1 \x9b1m, line\nnext\r, turned \u202e"
TRACE = f"Traceback:\n  File x\nError: {NASTY}"


class Letters:
    """A ledger with dead letters, and the command `holdfast dlq`."""

    def __init__(self, ledger: Ledger, url: str, run: Run) -> None:
        self.ledger = ledger
        self._url = url
        self._run = run

    def make(self, kind: str = "index", *, reason: str = "timeout", **given: Any) -> int:
        job = self.ledger.enqueue(kind, {"page": 7}, **given)
        self.ledger.claim_job(job.id, worker="ada")
        error = {"type": "Error", "message": NASTY, "traceback": TRACE}
        self.ledger.dead_letter(job.id, reason_code=reason, failure_stage="exec", error=error)
        return job.id

    def __call__(self, *arguments: object) -> Done:
        done = self._run("dlq", *arguments, "--db", self._url)
        for raw in ("\x1b", "\x07", "\x9b", "\r", "\u202e"):
            assert raw not in done.out + done.err
        return done

    def ids(self, *arguments: object) -> list[int]:
        return [letter["job_id"] for letter in self("list", *arguments, "--json").answer["data"]["dead_letters"]]


@pytest.fixture
def dlq(store_url: str, run: Run) -> Iterator[Letters]:
    with holdfast.open(store_url) as ledger:
        yield Letters(ledger, store_url, run)


@pytest.fixture
def dlq_here(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Iterator[Letters]:
    """The same on SQLite only."""
    url = f"sqlite:///{tmp_path_factory.mktemp('letters')}/holdfast.db"
    with holdfast.open(url) as ledger:
        yield Letters(ledger, url, run)


def test_a_dead_letter_is_listed_shown_and_replayed(dlq: Letters) -> None:
    id_ = dlq.make()
    assert "red \\x1b[31m" in dlq("list").out

    shown = dlq("show", id_)
    for part in ("timeout", "exec", "ada", "Traceback:", '{"page":7}', "dead_lettered", "operator:"):
        assert part in shown.out
    letter = dlq("show", id_, "--json").answer["data"]
    assert {*(dlq.ledger.get(id_).dead_letter or {})} <= letter.keys()
    assert letter["last_error"]["message"] == NASTY
    assert [event["type"] for event in letter["history"]] == ["enqueued", "claimed", "dead_lettered"]

    [replay] = dlq("replay", id_, "--json").answer["data"]["replayed"]
    assert replay == {"job_id": id_, "replayed_as": dlq.ledger.list(replay_of=id_)[0].id, "is_new": True}
    again = dlq("replay", id_)
    assert again.out == f"  job {id_} is replayed as {replay['replayed_as']}, which was live already\n1 replayed.\n"

    assert dlq("discard", id_, "--reason", "seen to").out == f"1 discarded: {id_}.\n"
    assert dlq.ledger.events(id_)[-1].reason == "seen to"
    assert (dlq.ids(), dlq.ids("--discarded")) == ([], [id_])


def test_filters_select_dead_letters(dlq: Letters) -> None:
    first, second, third = dlq.make(), dlq.make("mail", queue="out"), dlq.make(reason="parse_error")
    assert dlq.ids() == [first, second, third]
    assert dlq.ids("--kind", "index") == [first, third]
    assert dlq.ids("--queue", "out") == [second]
    assert dlq.ids("--reason-code", "parse_error") == [third]
    assert dlq.ids("--stage", "fetch") == []
    assert dlq.ids("--since", "1h") == [first, second, third]
    assert dlq.ids("--since", "2999-01-01") == []
    page = dlq("list", "--limit", 2, "--json").answer["data"]
    assert page["next_after"] == second
    assert dlq.ids("--after", second) == [third]


def test_filters_select_what_is_replayed(dlq: Letters) -> None:
    first, second, third = dlq.make(), dlq.make("mail"), dlq.make()
    done = dlq("replay", "--all", "--kind", "index", "--json").answer["data"]["replayed"]
    assert [one["job_id"] for one in done] == [first, third]
    assert dlq.ledger.list(replay_of=second) == []
    done = dlq("replay", "--all", "--limit", 2, "--json").answer["data"]["replayed"]
    assert [(one["job_id"], one["is_new"]) for one in done] == [(second, True)]


def test_replaying_all_skips_replayed_letters(dlq: Letters) -> None:
    first = dlq.make()
    assert dlq("replay", "--all", "--json").answer["data"]["skipped"] == 0
    [replay] = dlq.ledger.list(replay_of=first)
    dlq.ledger.dead_letter(replay.id, reason_code="timeout")

    data = dlq("replay", "--all", "--json").answer["data"]
    assert ([one["job_id"] for one in data["replayed"]], data["skipped"]) == ([replay.id], 1)
    done = dlq("replay", "--all")
    assert done.out == "0 replayed.\n2 skipped: replayed before. With --again they are replayed once more.\n"

    data = dlq("replay", "--all", "--again", "--json").answer["data"]
    assert [(one["job_id"], one["is_new"]) for one in data["replayed"]] == [(first, True), (replay.id, False)]
    assert data["skipped"] == 0


def test_a_letter_named_by_id_is_not_replayed_twice(dlq: Letters) -> None:
    first, second = dlq.make(), dlq.make()
    made = dlq.ledger.replay(first)
    dlq.ledger.dead_letter(made.id, reason_code="timeout")

    done = dlq("replay", first, second)
    [other] = dlq.ledger.list(replay_of=second)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"  job {second} is replayed as {other.id}\n"
        f"  job {first} was replayed before, as {made.id} (dead_lettered): replay {made.id}, or give --again\n"
        "1 replayed.\n1 skipped.\n"
    )
    data = dlq("replay", first, "--json").answer["data"]
    assert (data["replayed"], data["skipped"]) == ([], 1)
    assert data["skipped_jobs"] == [{"job_id": first, "replayed_as": made.id, "status": "dead_lettered"}]
    assert [job.id for job in dlq.ledger.list(replay_of=first)] == [made.id]

    [again] = dlq("replay", first, "--again", "--json").answer["data"]["replayed"]
    assert again["is_new"]
    assert len(dlq.ledger.list(replay_of=first)) == 2


@pytest.mark.parametrize("everything", [False, True])
def test_a_replay_records_its_reason(dlq_here: Letters, everything: bool) -> None:
    id_ = dlq_here.make()
    chosen = ["--all", "--reason-code", "timeout"] if everything else [id_]
    [replay] = dlq_here("replay", *chosen, "--reason", "mended", "--json").answer["data"]["replayed"]
    assert dlq_here.ledger.events(replay["replayed_as"])[0].reason == "mended"


def test_a_refused_replay_does_not_affect_the_others(dlq_here: Letters) -> None:
    keyed, plain = dlq_here.make(dedupe_key="k"), dlq_here.make()
    holder = dlq_here.ledger.enqueue("index", dedupe_key="k")

    by_id = dlq_here("replay", keyed, 999, plain, "--json")
    assert by_id.code == 1
    assert by_id.answer["error_code"] == "conflict"
    assert [one["job_id"] for one in by_id.answer["error_context"]["replayed"]] == [plain]
    assert [(one["job_id"], one["error_code"]) for one in by_id.answer["error_context"]["refused"]] == [
        (keyed, "conflict"), (999, "not_found")
    ]  # fmt: skip

    by_filter = dlq_here("replay", "--all")
    assert by_filter.code == 1
    assert "0 replayed.\n1 skipped" in by_filter.out
    assert f"held by job {holder.id}" in by_filter.err


def test_other_jobs_are_not_dead_letters(dlq_here: Letters) -> None:
    job = dlq_here.ledger.enqueue("index")
    for verb in ("show", "discard"):
        done = dlq_here(verb, job.id)
        assert done.code == 1
        assert f"job {job.id} is not a dead letter: it is queued" in done.err
        assert "See the job: holdfast job get" in done.err
    assert dlq_here.ledger.get(job.id).note is None


@pytest.mark.parametrize(
    "arguments", [(), (1, "--all"), (1, "--kind", "x"), (1, "--limit", 3), ("--all", "--since", "soon"), (0,)]
)
def test_replay_requires_ids_or_filters(dlq_here: Letters, arguments: tuple[object, ...]) -> None:
    assert dlq_here("replay", *arguments).code == 2


def test_since_uses_the_ledgers_clock(store_url: str, run: Run) -> None:
    with holdfast.open(store_url, clock=ManualClock(datetime.now(UTC) - timedelta(hours=3))) as ledger:
        letters = Letters(ledger, store_url, run)
        letters.make()
    assert (letters.ids("--since", "2h"), len(letters.ids("--since", "4h"))) == ([], 1)


def test_a_letter_shows_its_replay(dlq_here: Letters) -> None:
    first, second = dlq_here.make(), dlq_here.make()
    made = dlq_here.ledger.replay(first)
    shown = {letter["job_id"]: letter["replayed_as"] for letter in dlq_here("list", "--json").answer["data"]["dead_letters"]}
    assert shown == {first: {"job_id": made.id, "status": "queued"}, second: None}
    assert f"{made.id}, queued" in dlq_here("list").out


def test_filters_select_what_is_discarded(dlq_here: Letters) -> None:
    first, second, third = dlq_here.make("a"), dlq_here.make("b"), dlq_here.make("b")
    dlq_here.ledger.replay(second)
    assert dlq_here("discard", "--all", "--replayed").out == f"1 discarded: {second}.\n"
    assert dlq_here("discard", "--all", "--kind", "b", "--json").answer["data"] == {"discarded": [third]}
    assert dlq_here("discard", "--all", "--reason-code", "policy_violation").out == "There are no such dead letters.\n"
    assert dlq_here.ids() == [first]
    assert dlq_here("discard", first, "--all").code == 2
    assert dlq_here("discard", first, "--kind", "a").code == 2


def test_a_replay_may_discard_its_letter(dlq_here: Letters) -> None:
    first, second = dlq_here.make(), dlq_here.make()
    done = dlq_here("replay", "--all", "--discard", "--json").answer["data"]
    assert done["discarded"] == [letter["job_id"] for letter in done["replayed"]] == [first, second]
    assert dlq_here.ids() == []
