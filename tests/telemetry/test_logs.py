"""Log lines: their fields, and texts that try to look like another line."""

import contextlib
import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Ledger
from holdfast.errors import ValidationError
from holdfast.telemetry import formatters, logs

log = logging.getLogger("shop.orders")


@pytest.fixture
def stream(restored_logs: None) -> io.StringIO:
    """The stream of log lines."""
    return io.StringIO()


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@contextlib.contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Only these fields are bound, with any values."""
    token = logs.current.set(fields)
    try:
        yield
    finally:
        logs.current.reset(token)


def record(message: str, *args: Any, **extra: Any) -> logging.LogRecord:
    return log.makeRecord(log.name, logging.INFO, __file__, 1, message, args, None, extra=extra)


def test_a_line_within_a_handler_has_the_fields_of_its_job(ledger: Ledger, stream: io.StringIO) -> None:
    logs.configure(json=True, stream=stream)
    ledger.enqueue("index_page", queue="crawl", correlation_id="order-7", trace_id="t")
    [job] = ledger.claim("w", ["crawl"])
    with logs.bind_job(job, "w"):
        log.info("fetched %s", "a page", extra={"bytes": 512})
    log.info("afterwards")

    within, afterwards = objects(stream)
    assert within.pop("ts").endswith("Z")
    assert within == {
        "level": "INFO",
        "logger": "shop.orders",
        "message": "fetched a page",
        "job_id": job.id,
        "attempt": 1,
        "kind": "index_page",
        "queue": "crawl",
        "worker": "w",
        "correlation_id": "order-7",
        "trace_id": "t",
        "bytes": 512,
    }
    assert afterwards.keys() == {"ts", "level", "logger", "message"}


def test_bindings_nest_and_end(ledger: Ledger) -> None:
    outer, inner = ledger.enqueue("a"), ledger.enqueue("b")
    with logs.bind_job(outer, "w"):
        with logs.bind_job(inner, "w"):
            assert (logs.current.get()["job_id"], logs.current.get()["kind"]) == (inner.id, "b")
        assert (logs.current.get()["job_id"], logs.current.get()["kind"]) == (outer.id, "a")
    assert logs.current.get() == {}


def test_a_binding_ends_with_an_exception(ledger: Ledger) -> None:
    with pytest.raises(LookupError), logs.bind_job(ledger.enqueue("a"), "w"):
        raise LookupError
    assert logs.current.get() == {}


def test_threads_do_not_see_each_other_s_bindings(ledger: Ledger) -> None:
    seen = []
    with logs.bind_job(ledger.enqueue("a"), "w"):
        thread = threading.Thread(target=lambda: seen.append(dict(logs.current.get())))
        thread.start()
        thread.join()
    assert seen == [{}]


def test_fields_of_a_line_override_bound_fields() -> None:
    found = record("m", queue="mine")
    with bound(queue="q", kind="a"):
        logs.ContextFilter().filter(found)
    assert (found.queue, found.kind, found.worker) == ("mine", "a", None)  # type: ignore[attr-defined]


def test_an_exception_is_one_field(stream: io.StringIO) -> None:
    logs.configure(json=True, stream=stream)
    try:
        raise LookupError("no\nsuch\npage")
    except LookupError:
        log.exception("failed")

    [line] = objects(stream)
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("LookupError: no\nsuch\npage")


def test_configuring_again_replaces_only_its_own(stream: io.StringIO) -> None:
    other = logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(other)
    try:
        logs.configure(json=True, stream=io.StringIO())
        logs.configure(json=True, level="WARNING", stream=stream)
        assert other in root.handlers
        assert len([handler for handler in root.handlers if isinstance(handler, logs._OwnHandler)]) == 1
        log.info("quiet")
        log.warning("loud")
        assert [line["message"] for line in objects(stream)] == ["loud"]
    finally:
        root.removeHandler(other)


def test_an_unknown_level_is_refused(stream: io.StringIO) -> None:
    with pytest.raises(ValidationError, match="level"):
        logs.configure(level="LOUD", stream=stream)


def test_text_lines_have_time_level_and_fields(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    with bound(job_id=7, kind="a"):
        log.info("done")
    assert stream.getvalue().endswith("Z INFO     shop.orders: done  [job=7 kind=a]\n")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"),
        ("0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319c"),
        ("order 7", "order 7"),
        (None, None),
    ],
)
def test_a_traceparent_is_logged_as_its_trace_id(ledger: Ledger, given: str | None, shown: str | None) -> None:
    ledger.enqueue("index_page", trace_id=given)
    [job] = ledger.claim("w")
    found = record("it")
    with logs.bind_job(job, "w"):
        logs.ContextFilter().filter(found)
    assert found.__dict__["trace_id"] == shown


def test_an_exception_in_text_lines_is_indented(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    try:
        raise LookupError("no\n2026-01-01T00:00:00Z INFO forged: line")
    except LookupError:
        log.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("shop.orders: failed")
    assert all(line.startswith("    | ") for line in rest)


ANYTHING = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["\r\n", "\x1b[2J", "\u2028", "\x85", "\x7f", "\u202e", "\ud800", '"}\n{"level":"CRITICAL']
)


@given(message=ANYTHING, value=ANYTHING, key=ANYTHING)
def test_no_text_can_break_a_json_line(message: str, value: str, key: str) -> None:
    found = record("%s", message, value=value, nested={key: [value]})
    found.name = value or "n"
    line = formatters.JsonFormatter().format(found)
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["message"] == message
    assert json.loads(line)["value"] == value


@given(message=ANYTHING, value=ANYTHING, key=ANYTHING)
def test_no_text_can_break_a_text_line(message: str, value: str, key: str) -> None:
    found = record("%s", message, value=value, nested={key: [value]})
    with bound(worker=value):
        logs.ContextFilter().filter(found)
    assert formatters.TextFormatter().format(found).isprintable()


class Silent:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Failing(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


def test_a_container_that_raises_is_logged_by_its_type() -> None:
    line = json.loads(formatters.JsonFormatter().format(record("m", odd=Failing(), fine=1)))
    assert (line["odd"], line["fine"]) == ("<Failing>", 1)


def test_values_of_any_type_become_json() -> None:
    endless: list[Any] = []
    endless.append(endless)
    given = {
        "big": 10**5_000,
        "nan": float("nan"),
        "odd": Silent(),
        "endless": endless,
        "set": {1},
        "bytes": b"\n",
        "map": {1: None},
    }
    line = json.loads(formatters.JsonFormatter().format(record("m", **given)))
    assert line["big"].startswith("0x")
    assert (line["nan"], line["odd"], line["set"], line["bytes"], line["map"]) == ("nan", "<Silent>", [1], "b'\\n'", {"1": None})


def test_a_log_message_that_does_not_fit_its_arguments_is_still_a_line() -> None:
    assert json.loads(formatters.JsonFormatter().format(record("%d pages", "many")))["message"] == "%d pages ('many',)"
    assert json.loads(formatters.JsonFormatter().format(record("%s", Silent())))["message"].startswith("%s ")


def test_an_extra_cannot_replace_a_field_of_the_line() -> None:
    line = json.loads(
        formatters.JsonFormatter().format(record("m", level="CRITICAL", ts="never", logger="root", exception="none"))
    )
    assert (line["level"], line["logger"], line["level_"], line["ts_"]) == ("INFO", "shop.orders", "CRITICAL", "never")
    assert "exception" not in line


@pytest.mark.parametrize("formatter", [formatters.JsonFormatter(), formatters.TextFormatter()])
def test_lines_are_bounded(formatter: logging.Formatter) -> None:
    huge = "\U0001f600" * 1_000_000
    found = record(huge, **{f"extra-{number}": huge for number in range(100)})
    found.exc_text = found.name = found.levelname = huge
    with bound(**dict.fromkeys(formatters.FIELDS, huge)):
        logs.ContextFilter().filter(found)
    line = formatter.format(found)
    if isinstance(formatter, formatters.JsonFormatter):
        assert len(line) <= formatters.LINE_BYTES_MAX
        assert json.loads(line)["truncated"] is True
    else:
        assert len(line) < 200_000


def test_the_library_logs_nothing_until_it_is_configured(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("holdfast.telemetry").warning("not configured")
    assert any(isinstance(handler, logging.NullHandler) for handler in logs.logger.handlers)
    assert capfd.readouterr().err == ""
