"""Numbers, errors and events as text."""

from typing import Any

import pytest

from holdfast.core.formatting import describe_event, format_error
from holdfast.core.text import pluralize


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 leaves, 0 heads"), (1, "1 leaf, 1 head"), (2, "2 leaves, 2 heads"), (1_000, "1,000 leaves, 1,000 heads")],
)
def test_counts_have_singular_and_plural(count: int, said: str):
    assert f"{pluralize(count, 'leaf', 'leaves')}, {pluralize(count, 'head')}" == said


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ({"type": "ValueError", "message": "no value\nat all"}, "ValueError: no value"),
        ({"message": "slow"}, "slow"),
        ("broken", "broken"),
        ([1, 2], "[1, 2]"),
        ({"message": "x" * 60}, "x" * 50 + "…"),
    ],
)
def test_an_error_is_one_line(error: Any, line: str):
    assert format_error(error, 50) == line


ERROR = {"type": "TransientError", "message": "the server said 503"}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (("claimed", None, {}), ("claimed", "")),
        (("stalled", "TRANSIENT_ERROR", {"error": ERROR}), ("retried", "TransientError: the server said 503")),
        (("stalled", "TRANSIENT_ERROR", {}), ("retried", "")),
        (("stalled", "NO_HEARTBEAT", {}), ("stalled", "NO_HEARTBEAT")),
        (("stalled", "WORKER_ERROR", {"error": ERROR}), ("stalled", "WORKER_ERROR: TransientError: the server said 503")),
        (("dead_lettered", "timeout", {"last_error": "slow"}), ("dead_lettered", "timeout: slow")),
        (("dead_lettered", "timeout", {"last_error": None}), ("dead_lettered", "timeout")),
        (("failed", None, {"error": "slow"}), ("failed", "slow")),
    ],
)
def test_the_text_of_an_event_has_what_happened_and_why(event: tuple[str, str | None, dict[str, Any]], words: tuple[str, str]):
    assert describe_event(*event) == words


def test_a_change_of_place_is_shown_with_both_values():
    assert describe_event("moved", None, {"queue": "b", "from_queue": "a"}) == ("moved", "from a to b")
    here = {"queue": "a", "from_queue": "a", "for_worker": "w", "from_worker": ""}
    assert describe_event("moved", None, here) == ("moved", "to the worker w")
    assert describe_event("moved", None, here | {"queue": "b", "for_worker": ""}) == ("moved", "from a to b, to any worker")
    assert describe_event("reprioritised", None, {"priority": 5, "from_priority": 0}) == ("reprioritised", "from 0 to 5")
    assert describe_event("moved", "later", {}) == ("moved", "later")
