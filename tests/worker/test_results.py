"""Results are checked against the return annotation of their handler, before they are recorded."""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import App, Job, ValidationError
from holdfast.testing import drain
from tests.support.refusals import refused
from tests.worker.conftest import dead


class Point(msgspec.Struct):
    x: int


@dataclass
class Box:
    width: int


class Pair(NamedTuple):
    first: int
    second: str


class Page(TypedDict):
    url: str


class Model(pydantic.BaseModel):
    size: int


class Colour(enum.Enum):
    RED = "red"


class Own:
    """A class that JSON does not have."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/a.db")
    yield app
    app.close()


def _ran(app: App, annotation: Any, result: Any, **options: Any) -> Job:
    """Run a handler with this return annotation and this result, and return its job."""

    def handle() -> Any:
        return result

    handle.__annotations__ = {} if annotation is None else {"return": annotation}
    job = app.enqueue(app.handler(**options)(handle))
    drain(app)
    return app.ledger.get(job.id)


MISFITS: list[tuple[Any, Any]] = [
    (int, "3"),
    (int, None),
    (int, 1.5),
    (str, 3),
    (type(None), 3),
    (list[int], ["a"]),
    (dict[str, int], {"a": "b"}),
    (Point, {"y": 1}),
    (Box, {"width": "wide"}),
    (Page, {"link": "a"}),
    (Model, {"size": "large"}),
    (Colour, "blue"),
    (Literal["a", "b"], "c"),
    (int | None, "3"),
    (tuple[int, str], (1, 2)),
    (Annotated[int, msgspec.Meta(ge=0)], -1),
]


@pytest.mark.parametrize(("annotation", "result"), MISFITS, ids=str)
def test_a_result_that_does_not_fit_is_a_permanent_failure(app: App, annotation: Any, result: Any) -> None:
    found = _ran(app, annotation, result)
    assert found.status == "dead_lettered"
    letter = dead(found)
    assert (letter["reason_code"], letter["failure_stage"], letter["attempts"]) == ("validation_failed", "output", 1)
    assert letter["last_error"]["type"] == "ValidationError"
    assert "the result does not fit its annotation" in letter["last_error"]["message"]


FITS: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (float, 3, 3),
    (type(None), None, None),
    (int | None, None, None),
    (dict, {"a": [1]}, {"a": [1]}),
    (Mapping[str, Any], {"a": 1}, {"a": 1}),
    (set[int], {1}, [1]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (Point, Point(1), {"x": 1}),
    (list[Point], [Point(1)], [{"x": 1}]),
    (Box, Box(2), {"width": 2}),
    (Pair, Pair(1, "a"), [1, "a"]),
    (Page, {"url": "a"}, {"url": "a"}),
    (Model, Model(size=1), {"size": 1}),
    (Colour, Colour.RED, "red"),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    (date, date(2026, 1, 1), "2026-01-01"),
    (UUID, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (object, 3, 3),
]


@pytest.mark.parametrize(("annotation", "result", "kept"), FITS, ids=str)
def test_a_result_that_fits_is_recorded(app: App, annotation: Any, result: Any, kept: Any) -> None:
    found = _ran(app, annotation, result)
    assert (found.status, found.result) == ("succeeded", kept)


@pytest.mark.parametrize("annotation", [None, Any, Own, list[Own], Callable[[], int], Iterator[int], Point | Box], ids=str)
def test_results_that_cannot_be_checked_are_accepted(app: App, annotation: Any) -> None:
    found = _ran(app, annotation, ["x"])
    assert (found.status, found.result) == ("succeeded", ["x"])


def test_a_handler_without_an_annotation_has_no_check(app: App) -> None:
    @app.handler()
    def plain(n):
        return n

    assert app.registry.find(plain).check_result is None


def test_a_handler_can_turn_the_check_off(app: App) -> None:
    assert _ran(app, int, "3", check_result=False).result == "3"


def test_an_app_can_turn_the_check_off_and_a_handler_on_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/b.db", check_result=False)
    assert _ran(app, int, "3").result == "3"
    assert _ran(app, int, "3", kind="strict", check_result=True).status == "dead_lettered"
    app.close()


def test_the_option_is_a_boolean(app: App) -> None:
    with refused("validation_error", "check_result"):
        _ran(app, int, 3, check_result="no")
    with pytest.raises(ValidationError):
        App("sqlite:///:memory:", check_result=1)  # type: ignore[arg-type]


async def _async_handler() -> int:
    return "3"  # type: ignore[return-value]


def test_results_of_async_handlers_are_checked(app: App) -> None:
    job = app.enqueue(app.handler("looped")(_async_handler))
    drain(app)
    assert dead(app.ledger.get(job.id))["failure_stage"] == "output"
