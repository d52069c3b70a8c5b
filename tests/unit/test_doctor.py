"""The doctor's findings from given facts."""

from typing import Any

import msgspec
import pytest

from holdfast.core.doctor import HealthFinding, LedgerHealth, Severity, Skew, StoreHealth, diagnose
from holdfast.core.doctor.model import (
    COUNT_MAX,
    History,
    LockedJob,
    OpenTransaction,
    ReadyJobs,
    RoutedJobs,
    SinkHealth,
    StoredFile,
)
from holdfast.core.explain.model import QueuePause, SeenWorker
from holdfast.core.limits import GROUPED_LETTERS_MAX
from holdfast.core.model import required_labels
from holdfast.core.policy import DAY_MS
from tests.unit.histories import SECOND, T0

FILE: dict[str, Any] = {
    "store": "sqlite",
    "version": "SQLite 3",
    "schema_version": 5,
    "schema_known": 5,
    "settings": {"journal_mode": "wal", "synchronous": "full"},
    "files": (StoredFile("a.db", 0o640),),
    "disk_free_bytes": 1 << 33,
}
SERVER: dict[str, Any] = {
    "store": "postgresql",
    "version": "PostgreSQL 18",
    "schema_version": 5,
    "schema_known": 5,
    "settings": {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"},
    "horizon_xids": 3,
}
MINUTE = 60 * SECOND
HERE = SeenWorker("w-1", T0, frozenset({"q"}), frozenset({"k"}))


def finding(code: str, vitals: dict[str, Any] | None = None, skew: Skew | None = None, **census: Any) -> HealthFinding:
    found = diagnose("abc", StoreHealth(**(vitals or FILE)), LedgerHealth(now=T0, **census), skew)
    [only] = [finding for finding in found.findings if finding.code == code]
    assert found.well == all(finding.severity is not Severity.WARNING for finding in found.findings)
    assert only.action or only.severity is not Severity.WARNING
    return only


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (
            History(events=2_000_000, first_at=T0, bytes=3 << 30, recent=20_000, recent_us=24 * 60 * MINUTE),
            (
                "about 2,000,000 events since 2026-01-01, 3.0 GiB with jobs and indexes; "
                "about 20,000 came in the last 24 h, which is about 30.7 MiB"
            ),
        ),
        (
            History(events=1, first_at=T0, bytes=1, recent=0, recent_us=SECOND),
            "about 1 event since 2026-01-01, 1 byte with jobs and indexes; about 0 came in the last 1 s, which is about 0 bytes",
        ),
    ],
)
def test_the_size_of_the_history_is_reported(history: History, words: str):
    assert finding("history", history=history) == HealthFinding("history", Severity.WELL, words)


def test_a_healthy_ledger_has_no_warnings():
    found = diagnose("abc", StoreHealth(**FILE), LedgerHealth(now=T0, workers=(HERE,)))
    assert found.well
    assert (found.ledger_id, found.store, found.store_version, found.schema_version) == ("abc", "sqlite", "SQLite 3", 5)
    codes = [
        "schema",
        "durability",
        "permissions",
        "disk",
        "workers",
        "sweeping",
        "retention",
        "sinks",
        "failed_jobs",
        "dead_letters",
    ]
    assert [finding.code for finding in found.findings] == codes
    assert {finding.severity for finding in found.findings} == {Severity.WELL}


def test_a_server_has_other_findings():
    found = diagnose("abc", StoreHealth(**SERVER), LedgerHealth(now=T0), Skew(0, 0))
    assert [f.code for f in found.findings][:6] == [
        "schema",
        "durability",
        "oldest_transaction",
        "horizon",
        "locked_jobs",
        "clock",
    ]


def test_a_short_lock_is_not_a_warning():
    found = finding("locked_jobs", SERVER | {"locked": (LockedJob(3, "process 7", 10 * SECOND),)})
    assert (found.severity, found.words) == (Severity.WELL, "no job has been locked for more than 10 s")


STORE = [
    ("schema", FILE | {"schema_version": 4}, "schema 4, but this Holdfast knows 5"),
    ("durability", FILE | {"settings": {"journal_mode": "delete", "synchronous": "full"}}, "journal_mode = delete"),
    ("durability", SERVER | {"settings": {"fsync": "off", "synchronous_commit": "on"}}, "fsync = off, synchronous_commit = on"),
    ("permissions", FILE | {"files": (StoredFile("a.db", 0o664), StoredFile("a.db-wal", 0o600))}, "a.db (0664)"),
    ("permissions", FILE | {"files": (StoredFile("a.db", 0o602),)}, "a.db (0602)"),
    ("disk", FILE | {"disk_free_bytes": 1 << 29}, "0.5 GiB are free"),
    (
        "connections",
        SERVER | {"connections": 78, "connections_max": 97},
        "78 of the server's 97 connections are in use, more than 80%",
    ),
    ("oldest_transaction", SERVER | {"oldest": OpenTransaction("process 7", 6 * MINUTE)}, "process 7, is 6 min old"),
    ("horizon", SERVER | {"writer": OpenTransaction("process 7", 6 * MINUTE)}, "followers wait for process 7"),
    (
        "locked_jobs",
        SERVER | {"locked": (LockedJob(3, "process 7", 11 * SECOND),)},
        "job 3 is locked by process 7, open for 11 s",
    ),
    ("replica", SERVER | {"replica": True}, "the server is a read replica"),
    ("writer", FILE | {"stopped_writer": 7}, "process 7 has the write lock and is stopped"),
    (
        "wal",
        FILE | {"log_bytes": 300 << 20, "log_readers": (7, 8)},
        "has 300.0 MiB, which grows while processes 7, 8 have a read transaction open",
    ),
]


@pytest.mark.parametrize(("code", "vitals", "words"), STORE)
def test_problems_of_a_store_are_reported(code: str, vitals: dict[str, Any], words: str):
    found = finding(code, vitals)
    assert found.severity is Severity.WARNING
    assert words in found.words


def test_a_large_log_without_readers_is_a_note():
    found = finding("wal", FILE | {"log_bytes": 300 << 20})
    assert found.severity is Severity.NOTE


def test_connections_are_counted_below_their_limit_too():
    found = finding("connections", SERVER | {"connections": 77, "connections_max": 97})
    assert (found.severity, found.words) == (Severity.WELL, "77 of the server's 97 connections are in use")


@pytest.mark.parametrize("name", ["oldest", "writer"])
def test_a_short_transaction_is_reported_as_harmless(name: str):
    vitals = SERVER | {name: OpenTransaction("process 7", 5 * MINUTE)}
    found = finding("oldest_transaction" if name == "oldest" else "horizon", vitals)
    assert (found.severity, "process 7" in found.words) == (Severity.WELL, True)


@pytest.mark.parametrize(
    ("skew", "severity", "words"),
    [
        (Skew(0, 2_000), Severity.WELL, "0 s ahead of"),
        (Skew(-5_000_000, 0), Severity.WELL, "5 s behind"),
        (Skew(-6_000_000, 1_000), Severity.WARNING, "6 s behind"),
        (Skew(3_600 * SECOND, 1_000), Severity.WARNING, "60 min ahead of"),
        (Skew(8 * SECOND, 6 * SECOND), Severity.WELL, "give or take 3 s"),
        (Skew(0, 2_000), Severity.WELL, "give or take 1 ms"),
        (Skew(0, 50_000), Severity.WELL, "give or take 25 ms"),
    ],
)
def test_a_clock_skew_counts_only_beyond_the_round_trip_time(skew: Skew, severity: Severity, words: str):
    found = finding("clock", skew=skew)
    assert found.severity is severity
    assert words in found.words


def test_workers_seen_lately_are_reported():
    silent = SeenWorker("w-2", T0 - 46 * SECOND)
    assert finding("workers").severity is Severity.NOTE
    assert finding("workers", workers=(silent,)).words == "no worker is signed in to this ledger"
    assert finding("workers", workers=(HERE,)).words == "1 worker is signed in, seen 0 s ago"
    late = SeenWorker("w-3", T0 - 43 * SECOND)
    assert (
        finding("workers", workers=(HERE, late, silent)).words
        == "2 workers are signed in, seen 0 s to 43 s ago, 1 more is silent"
    )
    assert finding("workers", workers=(HERE, silent, silent)).words.endswith("2 more are silent")
    old = SeenWorker(HERE.name, T0 - 40 * SECOND)
    assert finding("workers", workers=(HERE, old)).words == "1 worker is signed in, seen 0 s ago", "a newer one has replaced it"


@pytest.mark.parametrize(
    ("census", "severity", "words"),
    [
        ({}, Severity.WELL, "no sweep is needed"),
        ({"sweeper": "w-1"}, Severity.WELL, "w-1 sweeps"),
        ({"sweeper": "w-1", "due": 2}, Severity.WELL, "w-1 sweeps; 2 jobs are due"),
        ({"due": 1}, Severity.WARNING, "1 job is due for a sweep, and no worker sweeps"),
        ({"due": 1, "owing": 1}, Severity.WARNING, "2 jobs are due for a sweep"),
        ({"due": COUNT_MAX}, Severity.WARNING, "1,000 jobs or more are due for a sweep"),
    ],
)
def test_a_ledger_without_a_sweeper_is_reported(census: dict[str, Any], severity: Severity, words: str):
    found = finding("sweeping", **census)
    assert found.severity is severity
    assert words in found.words


def test_a_paused_queue_is_a_warning_only_if_jobs_wait():
    paused = {"it's": QueuePause(T0 - 90 * SECOND, "ada", "reindexing")}
    idle = finding("queue_paused", paused=paused)
    assert (idle.severity, idle.words) == (
        Severity.NOTE,
        "queue it's is paused; nothing waits in it; it was paused 90 s ago (2025-12-31 23:58:30Z) by ada: reindexing",
    )
    ready = (ReadyJobs("it's", "a", 2, 0), ReadyJobs("it's", "b", 1, 0))
    found = finding("queue_paused", paused=paused, ready=ready)
    assert (found.severity, "3 jobs" in found.words) == (Severity.WARNING, True)
    assert found.action == "Unpause it: holdfast queue unpause 'it'\"'\"'s'."


def backlog(**census: Any) -> list[HealthFinding]:
    found = diagnose("abc", StoreHealth(**FILE), LedgerHealth(now=T0, **census))
    assert found.well
    return [finding for finding in found.findings if finding.code == "backlog"]


def test_jobs_that_pile_up_before_their_workers_are_reported():
    old, new = ReadyJobs("q", "k", 2_998, T0 - 12 * MINUTE), ReadyJobs("q", "k", 3, T0 - 60 * SECOND)
    [found] = backlog(ready=(old, new), workers=(HERE,))
    assert (found.severity, found.words) == (Severity.NOTE, "3,001 jobs in queue q can be claimed, the first for 12 min")
    assert backlog(ready=(new,), workers=(HERE,)) == []
    assert backlog(ready=(old,), workers=(HERE,), paused={"other": QueuePause(T0)}) == [
        msgspec.structs.replace(found, words="2,998 jobs in queue q can be claimed, the first for 12 min")
    ]


def test_dead_and_failing_sinks_are_reported():
    well, failing = SinkHealth("a", 0, False, None), SinkHealth("b", 2, False, "OSError")
    dead = SinkHealth("c d", 9, True, "OSError: gone")
    assert finding("sinks", sinks=(well,)).words == "1 sink, none stuck"
    assert finding("sinks").words == "there are no sinks"
    assert finding("sinks", sinks=(well, failing)).severity is Severity.NOTE
    left = SinkHealth("left", 0, False, None, None, 3, T0 - 61 * SECOND)
    found = finding("sinks", sinks=(well, left, msgspec.structs.replace(left, name="served", relay="w-1#a")))
    assert (found.severity, found.words) == (Severity.WARNING, "events wait, and no process delivers them: left (3 events)")
    assert finding("sinks", sinks=(msgspec.structs.replace(left, waiting_since=T0 - 60 * SECOND),)).severity is Severity.WELL
    found = finding("sinks", sinks=(well, failing, dead))
    assert (found.severity, found.words) == (Severity.WARNING, "1 sink is dead: c d (OSError: gone)")
    assert "holdfast sink revive 'c d'" in found.action


def test_dead_letters_need_an_action():
    assert finding("dead_letters", dead_letters=1).words == "1 dead letter, neither replayed nor discarded"
    words = "10,000 dead letters or more, neither replayed nor discarded"
    assert finding("dead_letters", dead_letters=GROUPED_LETTERS_MAX).words == words


@pytest.mark.parametrize(
    ("census", "severity"),
    [
        ({"sealed_pos": 9, "unsealed": 0, "sealed_at": 0}, Severity.WELL),
        ({"sealed_pos": 5, "unsealed": 4, "sealed_at": T0 - 600 * SECOND}, Severity.WELL),
        ({"sealed_pos": 5, "unsealed": 4, "sealed_at": T0 - 601 * SECOND}, Severity.WARNING),
    ],
)
def test_a_sealed_ledger_without_a_sealer_is_reported(census: dict[str, Any], severity: Severity):
    assert finding("seal", **census).severity is severity


OPEN = "failed jobs and dead letters that are neither replayed nor discarded are"


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([], "everything is kept while no worker runs: only workers delete old data"),
        ([{}], f"answers to requests are kept, contents of heartbeats are kept, finished jobs are kept, {OPEN} kept"),
        (
            [{"requests": DAY_MS, "beats": 30 * DAY_MS, "jobs": 2 * DAY_MS}, {"beats": 3 * DAY_MS, "failed": DAY_MS}],
            (
                "answers to requests are deleted after 24 h, contents of heartbeats are deleted after 3 d, "
                f"finished jobs are deleted after 2 d, {OPEN} deleted after 24 h"
            ),
        ),
    ],
)
def test_retention_is_read_from_the_settings_of_workers(kept: list[dict[str, int]], words: str) -> None:
    workers = tuple(SeenWorker(f"w{number}", T0, keep_ms=one) for number, one in enumerate(kept))
    found = finding("retention", workers=workers)
    assert (found.severity, found.words) == (Severity.WELL, words)


def test_a_connection_pooler_is_reported():
    assert finding("pooler", SERVER | {"pooled": True}).severity is Severity.WELL
    found = finding("pooler", SERVER | {"pooled": True, "poll_ms": 500})
    assert (found.severity, "every 0.5 s" in found.words, "listen=HOST:PORT" in found.action) == (Severity.NOTE, True, True)


def test_the_process_that_seals_is_named():
    assert finding("seal", sealed_pos=9, sealed_at=T0).words.endswith("; no process seals")
    assert finding("seal", sealed_pos=9, sealed_at=T0, sealer="a1").words.endswith("; a1 seals")


def test_counting_is_reported_once_events_were_counted():
    assert finding("counting", uncounted=0).words == "all events are in totals and history"
    assert (
        finding("counting", uncounted=2, counter="server#a").words
        == "2 events not kept in totals and history yet; server#a counts them"
    )
    few, many = finding("counting", uncounted=1), finding("counting", uncounted=10_001)
    assert (few.severity, few.words) == (
        Severity.WELL,
        "1 event not kept in totals and history yet; the next reader counts them",
    )
    assert (many.severity, many.words) == (
        Severity.NOTE,
        "10,001 events not kept in totals and history yet, and no process counts",
    )


def test_signed_policies_are_well_with_a_server_key():
    assert finding("server_key", signed=("kind weld",), server_key=True).severity is Severity.WELL


def routed(requires: tuple[str, ...], since: int = T0 - 2 * MINUTE, kind: str = "k") -> RoutedJobs:
    return RoutedJobs("q", kind, required_labels("", requires), 3, since)


def test_jobs_whose_label_is_missing_may_be_for_agents():
    found = finding("label_missing", workers=(HERE,), agent_at=T0, routed=(routed(("a",)),))
    assert (found.severity, found.action[:24]) == (Severity.NOTE, "Unless it is for agents:")


def test_jobs_that_a_worker_may_have_are_not_reported():
    has = SeenWorker("w-2", T0, frozenset({"q"}), frozenset({"k"}), labels=frozenset({"a", "b"}))
    censuses: list[dict[str, Any]] = [
        {"workers": (HERE, has), "routed": (routed(("a", "b")),)},
        {"workers": (HERE,), "routed": (routed(("a",), since=T0),)},
        {"workers": (HERE,), "routed": (routed(("a",), kind="other"),)},
        {"workers": (HERE,), "routed": (routed(("a",)),), "paused": {"q": QueuePause(T0)}},
    ]
    for census in censuses:
        found = diagnose("abc", StoreHealth(**FILE), LedgerHealth(now=T0, **census)).findings
        assert not {one.code for one in found} & {"label_missing", "worker_missing"}
