"""`holdfast schedule`."""

import pytest

import holdfast
from tests.cli.conftest import Commands, Run


@pytest.fixture
def schedule(run: Run, store_url: str) -> Commands:
    return Commands(run, store_url, "schedule")


def test_a_schedule_is_added_shown_paused_run_and_removed(schedule: Commands) -> None:
    added = schedule(
        *("add", "nightly", "report", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--queue", "reports"),
        *("--args", '{"page": 1}', "--missed", "skip", "--overlap", "cancel", "--jitter", "5m", "--priority", "3"),
    )
    assert added.code == 0
    assert added.out.startswith("Schedule nightly makes report jobs, next at 20")
    found = schedule.ask("show", "nightly")["schedule"]
    assert (found["cron"], found["tz"], found["queue"], found["args"]) == ("0 3 * * *", "Europe/Berlin", "reports", {"page": 1})
    assert (found["missed"], found["overlap"], found["jitter_s"], found["options"]) == ("skip", "cancel", 300, {"priority": 3})
    shown = schedule("get", "nightly").out
    assert "0 3 * * * Europe/Berlin" in shown and "up to 5 min" in shown
    assert "nightly" in schedule("list").out
    assert "is paused" in schedule("pause", "nightly").out
    assert "paused by" in schedule("list").out
    job = schedule.ask("run", "nightly")["job"]
    assert (job["kind"], job["queue"], job["args"]) == ("report", "reports", {"page": 1})
    assert "next at" in schedule("resume", "nightly").out
    assert schedule.ask("remove", "nightly") == {"removed": "nightly"}
    assert schedule("list").out == "There are no schedules.\n"


def test_a_preview_shows_both_clocks(schedule: Commands) -> None:
    start, end = ("--start", "2026-03-28T00:00"), ("--end", "2026-03-30T12:00")
    with holdfast.open(schedule.url) as ledger:
        assert ledger.now().year >= 2026
    lines = schedule(
        "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", *start, "--end", "2099-01-01T00:00"
    ).out.splitlines()
    assert len(lines) == 10
    assert all(line.endswith(("CET", "CEST")) and "02:30:00" in line for line in lines)
    assert schedule("preview", "--every", "1h", *start, *end).out == "It does not fire any more.\n"
    schedule("add", "s", "k", "--queue", "q", "--every", "90s")
    times = schedule.ask("preview", "s", "--count", "3")
    assert (len(times["times"]), times["tz"]) == (3, "UTC")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("add", "s", "k", "--queue", "q"), 1, "either cron or every"),
        (("add", "s", "k", "--queue", "q", "--cron", "0 25 * * *"), 1, "'25' is not a valid hour"),
        (("add", "s", "k", "--queue", "q", "--cron", "0 3 * * *", "--tz", "Mars"), 1, "no time zone 'Mars'"),
        (("add", "s", "k", "--every", "1h"), 1, "no worker has declared the kind 'k'"),
        (("preview", "s", "--every", "1h"), 2, "the name of a schedule or its times, not both"),
        (("preview",), 2, "name a schedule, or give --cron or --every"),
        (("get", "none"), 1, "there is no schedule 'none'"),
        (("remove", "none"), 1, "there is no schedule 'none'"),
    ],
    ids=str,
)
def test_mistakes_are_named(schedule: Commands, arguments: tuple[str, ...], code: int, words: str) -> None:
    with holdfast.open(schedule.url):
        pass
    done = schedule(*arguments)
    assert (done.code, words in done.err) == (code, True), done


def test_the_removal_of_a_declared_schedule_is_remarked_on(schedule: Commands) -> None:
    with holdfast.open(schedule.url) as ledger:
        ledger.declare_schedules("k", {"s": {"every": "1h"}})
    assert "declared by its handler" in schedule("get", "s").out
    assert "comes back when a worker starts" in schedule("remove", "s").err


def test_a_declared_schedule_can_be_taken_and_given_back(schedule: Commands) -> None:
    with holdfast.open(schedule.url) as ledger:
        ledger.declare_schedules("k", {"s": {"every": "1h"}})
        ledger.set_schedule("t", "k", every="1h")
    lines = schedule("list").out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["handler", "operator"]
    taken = schedule("add", "s", "k", "--queue", "q", "--every", "2h")
    assert "To give it back to the code, remove it: holdfast schedule remove s." in taken.err
    again = schedule("add", "s", "k", "--queue", "q", "--every", "3h")
    assert "give it back" not in again.err
    assert schedule("remove", "s").code == 0
    with holdfast.open(schedule.url) as ledger:
        assert ledger.declare_schedules("k", {"s": {"every": "1h"}}) == []
