"""Arguments are checked when a job is enqueued, against the signature of its handler."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest

from holdfast import App, AsyncContext, Context, ValidationError
from holdfast.ledger.options import GONE
from holdfast.worker.enqueue import OPTIONS
from tests.support.refusals import refused


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    width: int


@pytest.fixture
def app(tmp_path: Any) -> App:
    return App(f"sqlite:///{tmp_path}/a.db")


def test_plain_arguments_are_encoded(app: App) -> None:
    @app.handler()
    def greet(job: Context, name: str, times: int = 1) -> None: ...

    assert app.enqueue(greet, name="Ada").args == {"name": "Ada", "times": 1}
    assert app.enqueue("greet", name="Ada", times=3).args == {"name": "Ada", "times": 3}


@pytest.mark.parametrize(
    "args",
    [{}, {"name": 5}, {"name": "Ada", "times": "3"}, {"name": "Ada", "extra": 1}, {"name": None}, {"name": "Ada", "times": 1.5}],
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_enqueued(app: App, args: dict[str, Any]) -> None:
    @app.handler()
    def greet(name: str, times: int = 1) -> None: ...

    with refused("validation_error", "greet"):
        app.enqueue(greet, **args)
    assert app.ledger.counts() == {}


def test_structs_dataclasses_and_dates_are_encoded(app: App) -> None:
    seen: list[Any] = []

    @app.handler()
    def place(at: Point, box: Box, when: datetime, tags: list[str] = []) -> None:  # noqa: B006 - what users write
        seen.append((at, box, when, tags))

    when = datetime(2026, 1, 1, tzinfo=UTC)
    job = app.enqueue(place, at=Point(1), box=Box(2), when=when)
    assert job.args == {"at": {"x": 1, "y": 0}, "box": {"width": 2}, "when": "2026-01-01T00:00:00Z", "tags": []}
    handler = app.registry.find(place)
    assert handler.signature.read(job.record.args) == {"at": Point(1), "box": Box(2), "when": when, "tags": []}


def test_bounds_in_annotations_are_checked(app: App) -> None:
    @app.handler()
    def count(to: Annotated[int, msgspec.Meta(ge=1, le=10)]) -> None: ...

    with refused("validation_error", "to"):
        app.enqueue(count, to=11)


def test_pydantic_models_are_encoded(app: App) -> None:
    import pydantic

    class Order(pydantic.BaseModel):
        item: str
        count: int = 1

    @app.handler()
    def ship(order: Order) -> None: ...

    job = app.enqueue(ship, order=Order(item="pen"))
    assert job.args == {"order": {"item": "pen", "count": 1}}
    assert app.enqueue("ship", order={"item": "pen"}).args == job.args
    assert app.registry.find(ship).signature.read(job.record.args) == {"order": Order(item="pen")}
    with refused("validation_error", "count"):
        app.enqueue("ship", order={"item": "pen", "count": "many"})


def hello(name: str, times: int | None = 1, order: Point | None = None) -> None: ...


def bare() -> None: ...


BEFORE = "Options of the job go before"


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (hello, {"name": "x", "nam": "x"}, "hello has no parameter 'nam'; it has: name, times, order"),
        (bare, {"nam": "x"}, "bare has no parameter 'nam'; it has none"),
        (hello, {"times": 1}, "hello needs the argument 'name'"),
        (hello, {"name": 4}, "hello: name must be str, not int"),
        (hello, {"name": None}, "hello: name must be str, not None"),
        (hello, {"name": ["x"]}, "hello: name must be str, not list"),
        (hello, {"name": "x", "times": "3"}, "hello: times must be int or None, not str"),
        (hello, {"name": "x", "order": {"x": "left"}}, "hello: order.x must be int, not str"),
        (hello, {"name": "x", "order": 3}, "hello: Expected `object | null`, got `int` - at `$.order`"),
        (bare, {"queue": "q"}, f"bare has no parameter 'queue'; it has none. {BEFORE}: app.options(queue=…).enqueue(…)"),
    ],
)
def test_errors_about_arguments_name_the_parameters(app: App, function: Any, given: dict[str, Any], said: str) -> None:
    app.handler()(function)
    with pytest.raises(ValidationError) as refusal:
        app.enqueue(function, **given)
    assert refusal.value.message == said
    body = msgspec.json.encode(given)
    with pytest.raises(ValidationError) as unread:
        app.registry.find(function).signature.read(body)
    assert unread.value.message == said


def test_a_function_with_keyword_arguments_accepts_any_name(app: App) -> None:
    @app.handler()
    def log(level: int, **rest: Any) -> None: ...

    job = app.enqueue(log, level=1, text="hi", more=[1])
    assert job.args == {"level": 1, "text": "hi", "more": [1]}
    assert app.registry.find(log).signature.read(job.record.args) == job.args


def _takes_either(place: Point | Box) -> None: ...


def _mixes_contexts(job: AsyncContext) -> None: ...


def test_functions_that_cannot_be_handlers_are_refused(app: App) -> None:
    with refused("validation_error", "by position"):
        app.handler()(lambda *values: None)
    with refused("validation_error", "two handlers"):
        app.handler("same")(lambda: None)
        app.handler("same")(lambda: None)
    with refused("validation_error", "only an async"):
        app.handler("x", isolation="loop")(lambda: None)
    with refused("validation_error", "by name"):
        app.handler("y", isolation="process")(lambda: None)
    with refused("limit_exceeded", "attempts_max"):
        app.handler("z", attempts_max=0)(lambda: None)
    with refused("validation_error", "a kind is a text"):
        app.handler(7)  # type: ignore[call-overload]
    with refused("validation_error", "no option 'queu'"):
        app.handler("w", queu="mail")  # type: ignore[call-overload]
    with refused("validation_error", "annotation of place"):
        app.handler("v")(_takes_either)
    with refused("validation_error", "AsyncContext"):
        app.handler("u")(_mixes_contexts)
    with refused("validation_error", "not a handler"):
        app.enqueue("unknown")


def _context_last(x: int, job: Context) -> None: ...


async def _context_last_too(x: int, *, job: AsyncContext) -> None: ...


def _perhaps(job: Context | None, x: int) -> None: ...


@pytest.mark.parametrize("function", [_context_last, _context_last_too, _perhaps])
def test_a_context_that_is_not_the_first_parameter_is_refused_at_registration(app: App, function: Any) -> None:
    with refused("validation_error", "job is annotated as a context: the context is the first parameter"):
        app.handler()(function)
    assert not len(app.registry)


def test_options_of_the_call_override_those_of_the_handler(app: App) -> None:
    @app.handler(queue="crawl", priority=3, tier="in_home")
    def fetch(url: str) -> None: ...

    job = app.options(priority=7, dedupe_key="k").enqueue(fetch, url="u")
    assert (job.queue, job.priority, job.tier, job.dedupe_key) == ("crawl", 7, "in_home", "k")
    assert not app.options(dedupe_key="k").enqueue(fetch, url="u").is_new
    assert app.options(request_id="r").enqueue(fetch, url="v").id == app.options(request_id="r").enqueue(fetch, url="v").id


def test_refusals_of_the_ledger_are_raised(app: App) -> None:
    @app.handler()
    def fetch(url: str) -> None: ...

    with pytest.raises(ValidationError, match="priority"):
        app.options(priority="high").enqueue(fetch, url="u")  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_with_the_known_ones(app: App) -> None:
    with pytest.raises(ValidationError, match="handler has no option 'atempts_max'; did you mean 'attempts_max'") as typo:
        app.handler("a", atempts_max=3)  # type: ignore[call-overload]
    assert "attempts_max, available_at, batch, batch_wait, check_result" in typo.value.action
    with pytest.raises(ValidationError, match=r"^handler has no option 'max_retries'$"):
        app.handler("a", max_retries=3)  # type: ignore[call-overload]
    with pytest.raises(ValidationError, match=r"^enqueue has no option 'countdown'$") as late:
        app.options(countdown=3)  # type: ignore[call-arg]
    assert "delay" in late.value.action
    with pytest.raises(ValidationError, match="did you mean 'delay'"):
        app.aio.options(dely=3)  # type: ignore[call-arg]
    assert not len(app.registry)


def test_every_option_of_enqueue_is_known_to_the_app(app: App) -> None:
    @app.handler()
    def fetch(url: str) -> None: ...

    for name in OPTIONS:
        app.options(**{name: None})  # type: ignore[arg-type]
    given = {name: None for name in OPTIONS if name != "queue"}
    assert app.options(**given).enqueue(fetch, url="u").is_new  # type: ignore[arg-type]


@pytest.mark.parametrize(("gone", "instead"), sorted(GONE.items()))
def test_an_option_that_is_gone_is_refused_with_what_to_use_instead(app: App, gone: str, instead: str) -> None:
    calls: list[Callable[..., object]] = [
        lambda **given: app.handler("a", **given),
        app.options,
        app.worker,
        lambda **given: app.ledger.enqueue_many([{"kind": "a", **given}]),
    ]
    for call in calls:
        with pytest.raises(ValidationError, match=rf"^\w+ has no option '{gone}'$") as refused:
            call(**{gone: None})
        assert refused.value.action == instead
