"""The fast path of `holdfast task heartbeat` records the same heartbeat as the normal path."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.program import fast_heartbeat
from holdfast.program.fast_heartbeat import try_heartbeat
from holdfast.store.sqlite.store import BUSY_MS
from holdfast.testing import ManualClock
from tests.contract.builders import held, queued
from tests.support.histories import problems


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("AGENT", "SESSION", "URL", "KEYS"):
        monkeypatch.delenv(f"HOLDFAST_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with holdfast.open(url) as ledger:
        yield ledger


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


def quickly(url: str, id_: int, *more: object, request: str = "r1") -> Any:
    """The answered task, or None if the fast path leaves the call to the normal path."""
    said = try_heartbeat(["--db", url, "--id", str(id_), "--agent=ada", "--request-id", request, "--json", *map(str, more)])
    return None if said is None else json.loads(said)["data"]["task"]


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


TELLINGS: list[dict[str, Any]] = [
    {},
    {"stage": "reading"},
    {"progress": 0},
    {"stage": "it's, a: stage", "progress": 12},
    {"attempt": 1},
]


@pytest.mark.parametrize("fields", TELLINGS)
def test_the_fast_path_records_the_same_heartbeat(ledger: Ledger, ada: Agent, url: str, fields: dict[str, Any]) -> None:
    one, two = queued(ledger, queue="q").id, queued(ledger, queue="q").id
    ada.start(one)
    ada.start(two)
    words = [word for name, value in fields.items() for word in (f"--{name}", value)]
    said = quickly(url, one, *words)
    full = msgspec.to_builtins(ada.heartbeat(two, **fields, request_id="r2"))
    differ = ("id", "claimed_at", "claim_expires_at", "last_heartbeat_at", "started_at", "available_at", "created_at")
    assert list(said) == list(full)
    assert without(said, *differ) == without(full, *differ)
    quick, slow = ledger.events(one)[-1], ledger.events(two)[-1]
    same = ("type", "rev", "actor", "attempt", "from_status", "to_status", "reason", "payload", "cause")
    assert [getattr(quick, name) for name in same] == [getattr(slow, name) for name in same]
    assert (quick.request_id, quick.at) == ("r1", quick.received_at)
    assert said == without(msgspec.to_builtins(ada.get(one)), "args")
    assert problems(ledger) == []


@pytest.mark.parametrize("fields", TELLINGS)
def test_the_answer_is_kept_for_a_repetition(ledger: Ledger, ada: Agent, url: str, fields: dict[str, Any]) -> None:
    one = queued(ledger).id
    ada.start(one)
    words = [word for name, value in fields.items() for word in (f"--{name}", value)]
    said = quickly(url, one, *words)
    rev = ledger.get(one).rev
    assert "replayed" not in said
    assert msgspec.to_builtins(ada.heartbeat(one, **fields, request_id="r1")) == {**said, "replayed": True}
    assert ledger.get(one).rev == rev
    with pytest.raises(holdfast.HoldfastError) as caught:
        ada.heartbeat(one, stage="another", request_id="r1")
    assert caught.value.code == "idempotency_conflict"


def test_the_text_answer_is_the_same(ledger: Ledger, ada: Agent, url: str, tmp_path: Path) -> None:
    one = queued(ledger).id
    ada.start(one)
    asked = ["--id", str(one), "--agent", "ada", "--request-id", "r1"]
    said = try_heartbeat(asked)
    program = "from holdfast.cli import main; main()"
    words = [sys.executable, "-c", program, "task", "heartbeat", *asked]
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    first, *rest = again.stdout.splitlines(keepends=True)
    assert first == "This request was answered before; nothing was changed. A new call needs a new --request-id.\n"
    assert rest == [said]


def test_requests_beyond_a_plain_heartbeat_take_the_normal_path(
    ledger: Ledger, ada: Agent, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, queued_one = queued(ledger).id, queued(ledger).id
    signed = queued(ledger, policy={"signed": "all"}).id
    ada.start(one)
    ledger.start(held(ledger.claim_job(signed, "ada", incarnation="agent")))
    assert quickly(url, one) is not None
    before = [ledger.events(id_) for id_ in (one, queued_one, signed)]
    assert quickly(url, one) is None
    for id_ in (queued_one, signed, 10**6):
        assert quickly(url, id_, request="r2") is None
    odd: list[tuple[object, ...]] = [
        ("--attempt", 2),
        ("--checkpoint", "1"),
        ("--session", "another"),
        ("--stage", "grüße"),
        ("--progress", "-1"),
        ("--id", one),
        ("--help",),
        ("--stage",),
    ]
    for more in odd:
        assert quickly(url, one, *more, request="r2") is None
    assert try_heartbeat(["--db", url, "--agent", "ada"]) is None
    assert try_heartbeat(["--db", "postgresql://nowhere", "--id", str(one), "--agent", "ada", "--request-id", "r2"]) is None
    assert try_heartbeat(["--db", f"{url}-not", "--id", str(one), "--agent", "ada", "--request-id", "r2"]) is None
    monkeypatch.setenv("HOLDFAST_KEYS", "some.key")
    assert quickly(url, one, request="r2") is None
    assert [ledger.events(id_) for id_ in (one, queued_one, signed)] == before


def test_a_heartbeat_after_the_lease_takes_the_normal_path(url: str) -> None:
    """A manual clock starts in the past, so the lease has expired."""
    with holdfast.open(url, clock=ManualClock()) as ledger:
        one = queued(ledger).id
        Agent(ledger, "ada").start(one)
    assert quickly(url, one) is None


def test_a_locked_file_takes_the_normal_path(ledger: Ledger, ada: Agent, url: str, tmp_path: Path) -> None:
    """The lock is held without the lock file. The fast path must not wait, because the normal path waits as well."""
    one = queued(ledger).id
    ada.start(one)
    with contextlib.closing(apsw.Connection(f"{tmp_path}/holdfast.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert quickly(url, one) is None
        other.execute("ROLLBACK")
    assert ledger.get(one).rev == 3
    assert 10 * fast_heartbeat._BUSY_MS <= BUSY_MS


def test_another_schema_takes_the_normal_path(ledger: Ledger, ada: Agent, url: str) -> None:
    one = queued(ledger).id
    ada.start(one)
    ledger._store.transact("work", lambda session: session._connection.execute("INSERT INTO holdfast_schema VALUES (999)"))  # type: ignore[attr-defined]
    assert quickly(url, one) is None


def test_the_fast_path_imports_few_modules(ledger: Ledger, ada: Agent, url: str) -> None:
    one = queued(ledger).id
    ada.start(one)
    program = "import sys; from _holdfast_program import main; main(); print(sorted(sys.modules), file=sys.stderr)"
    words = ["task", "heartbeat", "--id", str(one), "--agent", "ada", "--request-id", "r1", "--db", url]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, timeout=60)
    heavy = (
        "msgspec", "click", "asyncio", "psycopg", "inspect", "holdfast.ledger", "holdfast.core", "importlib.resources",
        "importlib.metadata", "_hashlib",
    )  # fmt: skip
    assert [name for name in heavy if f"'{name}'" in done.stderr] == []
