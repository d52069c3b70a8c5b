"""A small run of every figure on both stores. Times are not checked."""

import json
from pathlib import Path

import pytest

import holdfast
from bench.__main__ import main
from bench.figures import FIGURES
from bench.places import Host
from bench.report import Heading, Row, met, table
from bench.sizes import Sizes
from bench.texts import texts
from bench.version import REMOTE, VERBS, WORKS
from bench.versions import HERE, measure, postgres_site, sqlite_site
from bench.versions import table as table_of_versions
from tools.pgserver import PostgresServer

TINY = Sizes(
    jobs=1_100, rounds=2, singles=20, threads=4, history=300, leases=60, beats=2, sweeps=1, sweep_pause=0, lone=2,
    small=100, large=700, fleet_jobs=300, fleet_rounds=1, idle_seconds=0.5, settle_seconds=0.5, schedules=200, blocked_claims=20,
    dependents=60, grouped=60, tasks=1_000, resumes=2, runs=1, cycles=2, cycle_jobs=500,
    patient=False)  # fmt: skip


READING = {"get", "list", "remote-get", "remote-list"}
SHOWN = {"batches", "lone", "get", "remote-complete"}
"""Kinds of work that `make test` measures in turns, in processes of their own. `make torture` measures all of them."""
EVENTS_OF = {"enqueue": 1, "claim": 2, "complete": 1, "heartbeat": 1, "get": 0, "list": 0}
"""The events of one call. A claim also starts the job."""


@pytest.mark.parametrize("name", FIGURES)
def test_every_measurement_gives_a_figure_and_writes_its_events(host: Host, name: str) -> None:
    heading, measure = FIGURES[name]
    rows = measure(host, TINY)
    if (name in ("horizon", "fleet") and host.name == "SQLite") or (name == "cli" and host.name == "PostgreSQL"):
        assert rows == []
        return
    assert rows
    for row in rows:
        assert row.base > 0
        assert row.what in table(heading, rows)
        if name in ("idle", "schedules"):
            continue
        assert row.ours > 0
        assert row.events > 0 or name == "recovery"
        assert all(rate > 0 for rates in row.rounds.values() for rate in rates)


def test_the_raw_loops_run_every_frozen_statement(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frozen statements must still work with the current schema."""
    used: set[str] = set()
    file = f"frozen/{'sqlite' if host.name == 'SQLite' else 'postgres'}.sql"

    with host.place() as place:
        raw = place.raw()
        monkeypatch.setattr(raw, "_sql", Noting(raw._sql, used))  # type: ignore[attr-defined]
        raw.enqueue(raw.prepare_enqueue("frozen", 700))
        assert place.events("enqueued") == 701
        held = raw.hold("frozen", 100)
        assert [len(chunk) for chunk in held] == [100]
        assert raw.beat(held) == 100
        assert raw.drain("frozen", 600) == 600
        raw.close()
        written = {kind: place.events(kind) for kind in ("claimed", "started", "heartbeat", "succeeded")}
    assert written == {"claimed": 700, "started": 700, "heartbeat": 100, "succeeded": 600}
    assert used == texts(file).keys()


class Noting(dict[str, str]):
    """A mapping of statements that records which of them were read."""

    def __init__(self, found: dict[str, str], used: set[str]) -> None:
        super().__init__(found)
        self._used = used

    def __getitem__(self, name: str) -> str:
        self._used.add(name)
        return super().__getitem__(name)


def test_raw_statements_and_holdfast_write_the_same_rows(host: Host) -> None:
    """Two jobs, one each way. Only actors and times differ."""
    from bench import ours

    with host.place() as place:
        raw = place.raw()
        with holdfast.open(place.url) as ledger:
            ours.enqueue(ledger, ours.items("same", 1))
            raw.enqueue(raw.prepare_enqueue("same", 1))
            assert ours.drain(ledger, "same", 1) == raw.drain("same", 1) == 1
            mine, bare = ledger.list(queue="same")
            assert ledger.check(mine.id) == ledger.check(bare.id) == []
            assert mine.result == bare.result
            assert mine.args.keys() == bare.args.keys()
            assert [event.type for event in ledger.events(mine.id)] == [event.type for event in ledger.events(bare.id)]
        raw.close()


def test_generated_jobs_have_a_valid_history(host: Host) -> None:
    with host.place() as place:
        place.fill("ready", 3)
        place.fill("past", 3, finished=True)
        with holdfast.open(place.url) as ledger:
            assert ledger.counts() == {"first": {"queued": 1}, "past": {"succeeded": 3}, "ready": {"queued": 3}}
            assert [ledger.check(job.id) for job in ledger.list()] == [[]] * 7
            ledger.enqueue("report")


def test_the_command_prints_tables_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bulk", "--quick", "--jobs", "40", "--store", "sqlite", "--json", str(tmp_path / "figures.json")])
    printed = capsys.readouterr().out
    assert "fdatasync: " in printed
    assert "Bulk enqueue" in printed
    (figure,) = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert figure["name"] == "bulk"
    assert [row["what"] for row in figure["rows"]] == ["SQLite"]
    assert len(figure["rows"][0]["rounds"]["ours"]) == 4


@pytest.mark.parametrize("arguments", [["nothing"], ["--jobs", "0"], ["--jobs", "many"]])
def test_the_command_refuses_unknown_names(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)


@pytest.mark.parametrize(
    ("heading", "ours", "base", "target", "expected"),
    [
        (Heading("ratio"), 6.0, 10.0, 0.6, True),
        (Heading("ratio"), 5.9, 10.0, 0.6, False),
        (Heading("rate", judged="rate"), 25_000.0, 90_000.0, 25_000.0, True),
        (Heading("growth", judged="growth"), 30.0, 10.0, 20.0, False),
        (Heading("growth", judged="growth"), 29.9, 10.0, 20.0, True),
        (Heading("ratio"), 1.0, 10.0, None, None),
    ],
)
def test_a_target_is_reported_as_met_or_missed(
    heading: Heading, ours: float, base: float, target: float | None, expected: bool | None
) -> None:
    assert met(heading, Row("here", ours, base, target, 1, {})) is expected


@pytest.mark.parametrize("work", [work if work in SHOWN else pytest.param(work, marks=pytest.mark.torture) for work in WORKS])
def test_versions_are_measured_in_turns(tmp_path: Path, work: str) -> None:
    processes = 2 if work == "lone" else 1
    results = measure(lambda: sqlite_site(tmp_path), [HERE, HERE], work=work, processes=processes, turns=2, seconds=0.02)
    first, second = results
    assert len(first.turns) == len(second.turns) == 2
    assert all(turn.rate > 0 and turn.client_us > 0 and turn.server_us is None for turn in first.turns)
    assert all((turn.serve_us is not None) == work.startswith(REMOTE) for turn in first.turns)
    assert all(turn.all_us == pytest.approx(turn.client_us + (turn.serve_us or 0)) for turn in first.turns)
    assert all(turn.written_bytes > 0 for turn in first.turns) or work in READING
    assert "(1.000)" in table_of_versions(work, results)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_measured_alone(sqlite_url: str, verb: str) -> None:
    """A turn counts calls of the verb, and what they need was made before it."""
    with holdfast.open(sqlite_url) as ledger:
        work = VERBS[verb](ledger, sqlite_url, "jobs")
        work.prepare(0.01)
        before = sum(ledger.get(job.id).rev for job in ledger.list(limit=1_000))
        done = work.run(0.01)
        after = sum(ledger.get(job.id).rev for job in ledger.list(limit=1_000))
    assert done > 0
    assert after - before == EVENTS_OF[verb] * done


@pytest.mark.parametrize("name", [name for name in WORKS if name not in VERBS and not name.startswith(REMOTE)])
def test_each_kind_of_work_does_something(sqlite_url: str, name: str) -> None:
    with holdfast.open(sqlite_url) as ledger:
        work = WORKS[name](ledger, sqlite_url, "jobs")
        work.prepare(0.01)
        assert work.run(0.01) > 0


def test_a_turn_of_a_verb_ends_when_nothing_is_left_to_do(sqlite_url: str) -> None:
    with holdfast.open(sqlite_url) as ledger:
        work = VERBS["claim"](ledger, sqlite_url, "jobs")
        work.prepare(0.01)
        ready = len(ledger.list(status="queued", limit=1_000))
        assert ready
        assert [work.run(300), work.run(300)] == [ready, 0]


@pytest.mark.parametrize("work", ["batches", "remote-complete"])
def test_versions_on_postgres_count_the_server(pg_server: PostgresServer, work: str) -> None:
    [found] = measure(lambda: postgres_site(pg_server.url), [HERE], work=work, turns=1, seconds=0.05)
    [turn] = found.turns
    assert turn.server_us is not None
    assert turn.server_us > 0
    assert turn.all_us == pytest.approx(turn.client_us + (turn.serve_us or 0) + turn.server_us)
    assert turn.written_bytes > 0
    assert found.stored_bytes > 0
