"""Schedules that handlers declare, and that workers fire."""

from datetime import UTC, datetime

import pytest

from holdfast import App
from holdfast.errors import ValidationError
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter


def test_a_worker_declares_the_schedules_of_its_handlers_and_fires_them(app: App, start: Starter) -> None:
    ran: list[int] = []

    @app.schedule("soon", args={"n": 5}, every="1s", overlap="skip", priority=2)
    @app.handler
    def work(n: int) -> None:
        ran.append(n)

    app.schedule("nightly", work, args={"n": 7}, cron="0 3 * * *", tz="Europe/Berlin")
    start()
    found = {one.name: one for one in app.ledger.schedules()}
    assert {name: (one.kind, one.args, one.declared) for name, one in found.items()} == {
        "nightly": ("work", {"n": 7}, True),
        "soon": ("work", {"n": 5}, True),
    }
    assert found["soon"].options == {"priority": 2}
    wait_until(lambda: len(ran) >= 2)
    assert set(ran) == {5}


def test_a_schedule_that_is_no_longer_in_the_code_goes_when_a_worker_starts(app: App, start: Starter, store_url: str) -> None:
    @app.handler
    def work() -> None: ...

    app.ledger.declare_schedules("work", {"old": {"every": "1h"}})
    app.ledger.declare_schedules("other", {"of another": {"every": "1h"}})
    app.ledger.set_schedule("mine", "work", every="1h")
    app.schedule("mine", work, every="2h")
    start()
    assert [one.name for one in app.ledger.schedules()] == ["mine", "of another"]
    assert app.ledger.schedule("mine").every_s == 3_600


def test_a_worker_starts_without_the_limits_of_its_handlers(app: App, start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []

    @app.schedule("soon", every="1s", overlap="skip")
    @app.handler(limits=["openai"])
    def ask() -> None:
        ran.append(1)

    start()
    wait_until(lambda: len(ran) >= 1)
    make = "Make it: holdfast limit set openai --concurrent 10 (or --rate 600/1m)"
    assert [record.getMessage() for record in caplog.records if "there is no limit" in record.getMessage()] == [
        f"there is no limit openai: jobs of handler ask cannot be enqueued by their app. {make}",
        f"there is no limit openai: schedule soon of handler ask makes its jobs without it. {make}",
    ]
    assert make in str(app.ledger.schedule("soon").last_error)


def test_an_app_that_only_enqueues_declares_no_schedule(app: App) -> None:
    @app.schedule("hourly", every="1h")
    @app.handler
    def work() -> None: ...

    app.enqueue(work)
    assert app.ledger.schedules() == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "cron"),
        ({"cron": "99 * * * *"}, "cron"),
        ({"every": "1h", "args": {"m": 1}}, "args"),
        ({"every": "1h", "args": {"n": "x"}}, "args"),
        ({"every": "1h", "missed": "x"}, "missed"),
        ({"every": "1h", "color": 1}, "schedule"),
        ({"every": "1h", "start": datetime(2026, 1, 2, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)}, "end"),
    ],
    ids=str,
)
def test_a_wrong_schedule_is_refused_when_it_is_declared(app: App, fields: dict[str, object], field: str) -> None:
    @app.handler
    def work(n: int = 0) -> None: ...

    with pytest.raises(ValidationError) as refused:
        app.schedule("s", work, **fields)  # type: ignore[arg-type]
    assert refused.value.context["field"] == field


def test_two_schedules_of_one_name_are_refused(app: App) -> None:
    @app.handler
    def work() -> None: ...

    @app.handler
    def other() -> None: ...

    app.schedule("s", work, every="1h")
    with pytest.raises(ValidationError, match="two schedules"):
        app.schedule("s", other, every="1h")
    with pytest.raises(ValidationError, match="not a handler"):
        app.schedule("t", "unknown", every="1h")
