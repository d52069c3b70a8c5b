"""JSON goes in and comes back the same, byte for byte; what is not JSON is refused with a code and leaves no trace."""

import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

import holdfast
from holdfast.core.limits import INTEGER_MAX
from holdfast.core.model import Fence
from holdfast.errors import HoldfastError
from holdfast.ledger import Ledger
from holdfast.store.events import EventFilter
from holdfast.testing import ManualClock

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-INTEGER_MAX, INTEGER_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)), max_leaves=12
)
objects = st.dictionaries(texts, values, max_size=4)
blanks = st.text(" \t\r\n", max_size=3)
"""Values that not all JSON parsers read in the same way, alone or inside other values."""


@pytest.fixture(scope="module")
def shared(shared_url: str) -> Iterator[Ledger]:
    """One ledger for all examples: each uses its own jobs."""
    with holdfast.open(shared_url, clock=ManualClock()) as ledger:
        yield ledger


QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def raw(body: bytes) -> Any:
    """JSON as bytes."""
    return msgspec.Raw(body)


def begun(ledger: Ledger, job_id: int) -> Fence:
    """The fence of a job that runs now."""
    fence = ledger.claim_job(job_id, "w").fence
    ledger.start(fence)
    return fence


ENDS: dict[str, int] = {}


def position(ledger: Ledger) -> int:
    """The last position. Every accepted change moves it."""
    after = ENDS.get(ledger.id, 0)
    events = ledger._store.read(lambda session: session.events(EventFilter(after=after, limit=1_000_000)))
    ENDS[ledger.id] = events[-1].pos if events else after
    return ENDS[ledger.id]


def same(found: Any, given: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0 and not true."""
    if type(found) is not type(given):
        return False
    if isinstance(given, dict):
        return found.keys() == given.keys() and all(same(found[key], given[key]) for key in given)
    if isinstance(given, list):
        return len(found) == len(given) and all(map(same, found, given))
    return bool(found == given) and repr(found) == repr(given)


def refused(ledger: Ledger, verb: Any) -> None:
    before = position(ledger)
    with pytest.raises(HoldfastError) as caught:
        verb()
    assert caught.value.code in ("validation_error", "limit_exceeded")
    assert position(ledger) == before


@QUICK
@given(args=objects, result=values, error=objects)
def test_values_are_returned_equal(shared: Ledger, args: Any, result: Any, error: Any) -> None:
    job = shared.enqueue("k", args)
    assert same(shared.get(job.id).args, args)
    shared.fail(begun(shared, job.id), error, retry_after=0)
    assert same(shared.get(job.id).last_error, error)
    shared.complete(begun(shared, job.id), result)
    assert same(shared.get(job.id).result, result)
    assert shared.check(job.id) == []


@QUICK
@given(
    args=objects,
    result=values,
    gaps=st.lists(blanks, min_size=4, max_size=4),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)
def test_bytes_are_returned_unchanged(
    shared: Ledger, args: Any, result: Any, gaps: list[str], indent: int | None, ascii_only: bool
) -> None:
    """Except for blanks around the whole value."""
    args_text = json.dumps(args, indent=indent, ensure_ascii=ascii_only)
    result_text = json.dumps(result, indent=indent, ensure_ascii=ascii_only)
    job = shared.enqueue("k", raw(f"{gaps[0]}{args_text}{gaps[1]}".encode()), priority=1)
    assert shared.get(job.id).record.args == args_text.encode()
    shared.complete(begun(shared, job.id), raw(f"{gaps[2]}{result_text}{gaps[3]}".encode()))
    assert shared.get(job.id).record.result == result_text.encode()
    assert shared.check(job.id) == []
