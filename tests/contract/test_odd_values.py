"""Every public verb accepts or refuses any value of any argument with an error of Holdfast.

No verb fails with an error of Python, of the driver or of the database.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast import Fence, HeldJob, HoldfastError, Ledger
from holdfast.agent import Agent
from holdfast.core.model import Policy
from tests.support.signers import key

DEPTH = 5_000
NUMBERS = count(1)


class Odd:
    """An unusual value, with a name for the test's report."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make


def an_object(parts: list[Any]) -> dict[str, Any]:
    return {"a": parts[0]} if parts else {}


@functools.cache
def nested(depth: int, kind: Callable[[list[Any]], Any] = list) -> Any:
    """A deep value. It is made once: no verb changes its arguments, and making it takes longer than most calls."""
    whole = kind([])
    for _ in range(depth):
        whole = kind([whole])
    return whole


def looped() -> list[Any]:
    whole: list[Any] = []
    whole.append(whole)
    return whole


class Text(str):
    """A text of another type, as template engines make them."""

    __slots__ = ()


class Number(int):
    pass


PLAIN = [
    Odd("None", lambda: None),
    Odd("0", lambda: 0),
    Odd("-1", lambda: -1),
    Odd("True", lambda: True),
    Odd("2**31", lambda: 2**31),
    Odd("2**63", lambda: 2**63),
    Odd("10**5000", lambda: 10**5_000),
    Odd("-2**70", lambda: -(2**70)),
    Odd("1.5", lambda: 1.5),
    Odd("nan", lambda: float("nan")),
    Odd("inf", lambda: float("inf")),
    Odd("empty text", lambda: ""),
    Odd("blank", lambda: " "),
    Odd("surrogate", lambda: "a\ud800"),
    Odd("NUL", lambda: "a\0b"),
    Odd("long text", lambda: "a" * 2_000_000),
    Odd("bytes", lambda: b""),
    Odd("bad bytes", lambda: b"\xff\0"),
    Odd("object", object),
    Odd("type", lambda: int),
    Odd("deep list", lambda: nested(DEPTH)),
    Odd("looped list", looped),
    Odd("deep tuple", lambda: nested(DEPTH, tuple)),
    Odd("deep dict", lambda: nested(DEPTH, an_object)),
    Odd("empty list", list),
    Odd("empty dict", dict),
    Odd("duration", lambda: "5s"),
    Odd("timedelta", lambda: timedelta(seconds=5)),
    Odd("naive time", lambda: datetime(2026, 1, 1)),  # noqa: DTZ001
    Odd("first time", lambda: datetime.min.replace(tzinfo=UTC)),
    Odd("tuple", lambda: (1, 2, 3)),
    Odd("set", lambda: {1}),
    Odd("exception", lambda: ValueError("\ud800\0")),
    Odd("function", lambda: lambda: None),
    Odd("fence", lambda: Fence(2**70, -1, "\ud800")),
    Odd("odd fence", lambda: Fence("a", object(), None)),  # type: ignore[arg-type]
    Odd("kind of text", lambda: Text("a")),
    Odd("kind of number", lambda: Number(3)),
]
INSIDE = ("None", "0", "10**5000", "nan", "surrogate", "NUL", "object", "deep list", "kind of text")
"""Values that are also put into lists and objects."""
WRAPPED = [
    *(Odd(f"[{odd.name}]", lambda odd=odd: [odd.make()]) for odd in PLAIN if odd.name in INSIDE),  # type: ignore[misc]
    *(Odd(f"{{a: {odd.name}}}", lambda odd=odd: {"a": odd.make()}) for odd in PLAIN if odd.name in INSIDE),  # type: ignore[misc]
    Odd("{0: 0}", lambda: {0: 0}),
    Odd("{surrogate: 0}", lambda: {"\ud800": 0}),
    Odd("{None: 0}", lambda: {None: 0}),
    Odd("[[0, 0]]", lambda: [[0, 0]]),
    Odd("[(fence, deep)]", lambda: [(Fence(1, 1, "a"), nested(DEPTH))]),
    Odd("[(fence, {a: 0})]", lambda: [(Fence(1, 1, "a"), {"a": 0})]),
]
OPTIONS = (
    "priority", "delay", "available_at", "dedupe_key", "dedupe", "tier", "correlation_id", "trace_id", "policy", "depends_on",
    "on_dependency_failure",
)  # fmt: skip
MORE = {
    "enqueue": OPTIONS,
    "on_jobs": ("hard", "reason"),
    "set_policy": Policy.__struct_fields__,
    "declare_policy": Policy.__struct_fields__,
}
"""Arguments that the signature does not name."""
CALLED = {"write", "progress", "clock"}
"""Functions of the caller. Their errors are passed to the caller."""
WAITS = ("wait", "wait_group", "result", "follow")
NOT_CALLED = {"close", "waiter"}
"""Verbs without arguments."""


class Place(NamedTuple):
    ledger: Ledger

    def claimed(self) -> list[HeldJob]:
        queue = f"q{next(NUMBERS)}"
        self.ledger.enqueue("note", queue=queue)
        return self.ledger.claim("w", [queue], start=True)

    def held(self) -> Fence:
        [job] = self.claimed()
        return job.fence

    def usual(self, verb: str, name: str) -> Any:
        """A usual value for an argument."""
        if verb in WAITS and name == "timeout":
            return 0.0
        if verb in ("wait", "result") and name == "job":
            return self.ledger.enqueue("note")
        if (verb, name) == ("on_jobs", "jobs"):
            return [self.ledger.enqueue("note").id]
        makers: dict[str, Callable[[], Any]] = {
            "fence": self.held,
            "job_id": lambda: self.ledger.enqueue("note").id,
            "id": lambda: self.ledger.enqueue("note").id,
            "job": self.held,
            "worker": lambda: "w",
            "holder": lambda: "h",
            "name": lambda: f"n{next(NUMBERS)}",
            "kind": lambda: "note",
            "queue": lambda: "default",
            "error": lambda: "no",
            "note": lambda: "discarded",
            "reason_code": lambda: "validation_failed",
            "ttl": lambda: "5s",
            "request_id": lambda: f"r{next(NUMBERS)}",
            "results": lambda: [(self.held(), None)],
            "result": lambda: None,
            "jobs": self.claimed,
            "fences": lambda: [self.held()],
            "items": lambda: [{"kind": "note"}],
            "job_ids": lambda: [1],
            "write": lambda: lambda line: None,
            "envelope": lambda: b"{}",
            "public": lambda: key("worker", "w", next(NUMBERS)).public,
            "role": lambda: "worker",
            "key_id": lambda: "k",
            "token_id": lambda: "aaaaaaaaaaaa",
            "after": lambda: 0,
            "events": list,
            "dialect": lambda: "liveness",
            "priority": lambda: 1,
            "verb": lambda: "cancel",
            "schedules": lambda: {"hourly": {"every": "1h"}},
        }
        return makers[name]()


@pytest.fixture(scope="module")
def place(shared_url: str) -> Iterator[Place]:
    with holdfast.open(shared_url) as ledger:
        yield Place(ledger)


def verbs(face: type) -> list[str]:
    found = [name for name in dir(face) if not name.startswith("_") and name not in NOT_CALLED]
    return [name for name in found if inspect.isfunction(inspect.getattr_static(face, name))]


def arguments(function: Callable[..., Any], verb: str) -> tuple[list[str], list[str]]:
    """The required arguments, and all arguments."""
    given = [
        one for one in inspect.signature(function).parameters.values() if one.name != "self" and one.kind is not one.VAR_KEYWORD
    ]
    needed = [one.name for one in given if one.default is one.empty]
    return needed, [one.name for one in given] + [name for name in MORE.get(verb, ()) if name not in {one.name for one in given}]


def usual_arguments(place: Place, verb: str, needed: list[str], odd: str) -> dict[str, Any]:
    """Usual values for the required arguments, without the one that gets an odd value."""
    usual = {name: place.usual(verb, name) for name in needed if name != odd}
    if verb in WAITS and odd != "timeout":
        usual["timeout"] = 0.0
    if verb in ("wait", "result") and odd == "timeout":
        usual["job"] = place.ledger.cancel(place.ledger.enqueue("note").id).id
    if verb == "follow":
        place.ledger.enqueue("note")  # else a call without a timeout would wait for the first event of a new ledger
    if verb == "wait_group" and odd == "timeout":
        usual["name"] = place.ledger.group("done").name
        place.ledger.close_group("done")
    return usual


def failures(place: Place, face: type, verb: str) -> Iterator[str]:
    subject: Any = place.ledger if face is Ledger else Agent(place.ledger, "ada", session="s")
    needed, names = arguments(getattr(face, verb), verb)
    for name in names:
        usual: dict[str, Any] | None = None
        for odd in PLAIN + WRAPPED:
            if name in CALLED and callable(odd.make()):
                continue
            if usual is None:
                usual = usual_arguments(place, verb, needed, name)
            try:
                answer = getattr(subject, verb)(**usual, **{name: odd.make()})
                usual = None  # a call that was accepted has used its jobs and fences
                if inspect.isgenerator(answer):
                    list(islice(answer, 1))
            except HoldfastError as error:
                str(error).encode("utf-8", "backslashreplace")
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                yield f"{verb}({name}={odd.name}): {type(error).__name__}: {error!s:.100}"


@pytest.mark.parametrize("verb", verbs(Ledger))
def test_a_ledger_accepts_or_refuses_odd_values(place: Place, verb: str) -> None:
    assert list(failures(place, Ledger, verb)) == []


@pytest.mark.parametrize("verb", verbs(Agent))
def test_an_agent_accepts_or_refuses_odd_values(place: Place, verb: str) -> None:
    assert list(failures(place, Agent, verb)) == []


def test_the_process_has_its_usual_limit_of_recursion() -> None:
    assert sys.getrecursionlimit() == 1_000
