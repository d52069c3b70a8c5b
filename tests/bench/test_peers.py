"""The comparison with Holdfast's own worker alone, and with a contender that cannot be installed. Times are not checked."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from bench.cpu import Cpu, Meter
from bench.peers.base import Absent, Peer, Setting
from bench.peers.figures import Taken
from bench.peers.ground import contenders, database
from bench.peers.holdfast import PEERS
from bench.peers.scripted import Scripted
from bench.peers.storage import Postgres, Sqlite
from bench.peers.tables import plain, tables
from bench.rounds import Turn


@pytest.fixture(params=PEERS, ids=lambda peer: peer.storage)
def ours(request: pytest.FixtureRequest) -> Peer:
    peer: Peer = request.param
    return peer


@pytest.fixture
def setting(postgres_url: str, tmp_path: Path) -> Iterator[Setting]:
    with database(postgres_url, f"peer_{uuid.uuid4().hex}") as url:
        yield Setting(tmp_path, url, None, Path(sys.executable), tmp_path)


@pytest.fixture
def held(ours: Peer, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker gets no job until its processor time is first read: it could have run all of these few jobs by then."""
    ours.prepare(setting)
    kind = Sqlite if ours.storage == "sqlite" else Postgres
    begin = kind.meter
    url = f"sqlite:///{setting.home}/jobs.db" if ours.storage == "sqlite" else setting.postgres_url
    with holdfast.open(url) as ledger:
        ledger.pause("default")

        def meter(store: Any, worker: int) -> Meter:
            begun = begin(store, worker)
            ledger.unpause("default")
            return begun

        monkeypatch.setattr(kind, "meter", meter)
        yield


def test_the_worker_drains_queues_and_starts_single_jobs(ours: Peer, setting: Setting, held: None) -> None:
    turn = ours.drain(setting, 700)
    assert turn.rate > 0
    assert turn.cpu.client > 0
    assert (turn.cpu.server is not None) == (ours.storage == "postgres")
    taken = ours.latency(setting, 2)
    assert taken is not None
    assert len(taken) == 2
    assert min(taken) > 0


def test_every_contender_has_its_own_name() -> None:
    names = [(peer.name, peer.storage, peer.config) for peer in contenders()]
    assert len(set(names)) == len(names)
    assert names[0][0] == "holdfast"


def test_a_contender_that_is_not_installed_is_left_out(setting: Setting) -> None:
    missing = Scripted("missing", "postgres", "default", "no_such_program", "SELECT 0")
    with pytest.raises(Absent, match="no_such_program"):
        missing.prepare(setting)
    with pytest.raises(Absent, match="nowhere"):
        missing.prepare(setting._replace(python=setting.home / "nowhere"))


def test_the_tables_compare_contenders_with_holdfast_on_the_same_storage() -> None:
    us = Taken(PEERS[0], drain=[Turn(100.0, Cpu(12.0))])
    turns = [Turn(rate, Cpu(7.0, 9.0)) for rate in (20.0, 30.0, 25.0)]
    them = Taken(Scripted("them", "sqlite", "tuned", "", ""), drain=turns)
    gone = Taken(Scripted("gone", "redis", "default", "", ""), missing={"absent": "no Redis server"})
    shown = tables([us, them, gone], recovery_seconds_max=0.0)
    assert "0.250" in shown
    assert "20–30" in shown
    assert "12.0 client" in shown
    assert "7.0 client + 9.0 server" in shown
    assert "gone (redis, default): absent: no Redis server" in shown
    assert plain(them)["drain"] == [20.0, 30.0, 25.0]
