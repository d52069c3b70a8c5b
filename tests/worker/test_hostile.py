"""Hostile handlers, hooks and types harm no other job."""

from typing import Any

import msgspec
import pytest

from holdfast import App
from holdfast.services import CallableSink, Message
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended


class Unsayable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even its text")


class Picky(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        raise KeyError(self.n)


def leaves(*_: Any) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize(
    ("hooks", "args"),
    [
        ({}, {}),
        ({}, {"picky": {"n": 1}}),
        ({"checks": leaves}, {}),
        ({"validators": leaves}, {}),
        ({"conflicts": leaves}, {}),
    ],
    ids=["error", "arguments", "check", "validator", "conflict"],
)
def test_every_raised_error_is_the_outcome_of_its_job_only(
    app: App, start: Starter, is_async: bool, hooks: Any, args: Any
) -> None:
    if is_async:

        @app.handler("wrong", attempts_max=1, **hooks)
        async def wrong_async(picky: Picky | None = None) -> None:
            if not hooks:
                raise Unsayable

        @app.handler("fine")
        async def fine_async() -> int:
            return 1
    else:

        @app.handler("wrong", attempts_max=1, **hooks)
        def wrong(picky: Picky | None = None) -> None:
            if not hooks:
                raise Unsayable

        @app.handler("fine")
        def fine() -> int:
            return 1

    job = app.ledger.enqueue("wrong", args)
    start(threads=1)
    assert ended(app, job).status == "dead_lettered"
    assert ended(app, app.enqueue("fine")).result == 1


def test_a_sink_that_raises_system_exit_has_failed_and_gets_the_message_again(app: App, start: Starter) -> None:
    delivered: list[Message] = []

    def leaves_once(message: Message) -> None:
        delivered.append(message)
        if len(delivered) == 1:
            raise SystemExit(3)

    app.sink(CallableSink(leaves_once, start="beginning"))

    @app.handler()
    def fine() -> None: ...

    app.enqueue(fine)
    start()
    wait_until(lambda: len(delivered) > 1)
    assert delivered[0].key == delivered[1].key
