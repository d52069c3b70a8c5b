"""Workers with a key drain signed jobs through a server, and the history can be verified without the ledger."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.files.keys import write_key
from holdfast.services import Sealer
from holdfast.testing import ManualClock
from tests.support.proxy import Proxy
from tests.support.server import RunningServer
from tests.support.signers import ALL, SERVER, WORKER, enrol
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

JOBS = 40


@pytest.fixture
def behind(sqlite_url: str) -> Iterator[Ledger]:
    """The ledger behind the server, which has the server's key only."""
    with holdfast.open(sqlite_url, keys=[SERVER], actor="ann") as ledger:
        enrol(ledger)
        yield ledger


def _holdfast(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_worker_with_a_key_drains_signed_jobs(
    served: RunningServer, behind: Ledger, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "w-1.key"
    write_key(key_file, WORKER)
    token = served.client("worker", WORKER.name).token
    assert token is not None
    monkeypatch.setenv("HOLDFAST_KEYS", str(key_file))
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    log, go = tmp_path / "log", tmp_path / "go"
    behind.enqueue_many([{"kind": "count", "args": {"log": str(log), "n": n}, "policy": ALL} for n in range(JOBS)])
    long = behind.enqueue("hold", {"log": str(log), "go": str(go)}, policy=ALL)
    failing = behind.enqueue("no_such_handler", policy=ALL)
    with Fleet(served.url) as fleet:
        fleet.start(WORKER.name)
        wait_until(lambda: len(behind.events(long.id, types=["heartbeat"])) >= 2, what="two signed heartbeats")
        go.touch()
        wait_until(lambda: behind.counts()["default"].get("succeeded") == JOBS + 1, what="all results")
    assert behind.get(failing.id).status == "queued"
    signed = [event for event in behind.events(limit=1_000) if event.type in ("heartbeat", "succeeded")]
    assert len(signed) >= JOBS + 3
    assert {event.key_id for event in signed} == {WORKER.key_id}
    assert [behind.check(job.id) for job in behind.list(limit=100)] == [[]] * (JOBS + 2)
    with Sealer(behind) as sealer:
        sealer.seal_all()
    _holdfast(tmp_path, "events", "export", "--db", sqlite_url, "--out", "all.jsonl")
    _holdfast(tmp_path, "key", "export", "--db", sqlite_url, "--out", "keys.json")
    assert _holdfast(tmp_path, "verify", "all.jsonl", "--keys", "keys.json").splitlines()[-1] == "Intact."


@pytest.mark.parametrize("mixed", [False, True])
def test_a_beat_that_another_one_has_overtaken_is_signed_again(
    served: RunningServer, behind: Ledger, token: str, mixed: bool
) -> None:
    """Two processes of one worker sign with counters of their own. The clock of the second is a minute ahead."""
    ahead = ManualClock(datetime.now(UTC) + timedelta(minutes=1))
    with (
        holdfast.open(served.url, token=token, keys=[WORKER]) as one,
        holdfast.open(served.url, token=token, keys=[WORKER], clock=ahead) as two,
    ):
        job = one.enqueue("weld", policy=ALL)
        one.enqueue("weld", queue="plain")
        fence = one.claim_job(job.id, WORKER.name).fence
        two.heartbeat(fence, progress=1)
        assert one.heartbeat(fence, progress=2).status == "claimed"
        assert [found.status for found in one.heartbeat_many([fence])] == ["claimed"]  # type: ignore[union-attr]
        one.start(fence)
        [held] = one.claim(WORKER.name, ["plain"], start=True)
        plain = held.fence
        assert plain is not None
        two.heartbeat(fence, progress=3)
        ends = [(fence, {"ok": True}), *([(plain, {"ok": True})] if mixed else [])]
        changes = one.complete_many(ends, request_id="r-1")
        again = one.complete_many(ends, request_id="r-1")
    assert [getattr(change, "status", change) for change in changes] == ["succeeded"] * len(ends)
    assert changes == again
    assert behind.get(job.id).status == "succeeded"
    assert behind.check(job.id) == []


def test_a_lost_answer_of_a_signed_call_is_settled(served: RunningServer, behind: Ledger, token: str, line: Proxy) -> None:
    with holdfast.open(f"http://127.0.0.1:{line.port}", token=token, keys=[WORKER]) as remote:
        job = remote.enqueue("weld", policy=ALL)
        fence = remote.claim_job(job.id, WORKER.name).fence
        remote.start(fence)
        line.cut("after", statement=b"POST /v1/heartbeats")
        assert remote.heartbeat(fence, progress=1).status == "running"
        assert line.was_cut.is_set()
        line.cut("after", statement=f"POST /v1/jobs/{job.id}/complete".encode())
        assert remote.complete(fence, {"ok": True}).status == "succeeded"
        assert line.was_cut.is_set()
    assert behind.get(job.id).status == "succeeded"
    assert behind.check(job.id) == []
