"""Following the total order: no event is missed, none comes twice, in any order of commits."""

import threading
from collections import defaultdict

import psycopg
import pytest
from psycopg import sql

from holdfast import Event, Ledger
from tests.integration.conftest import Opener
from tests.support.histories import all_events, following_of
from tests.support.processes import fleet
from tests.support.waiting import wait_until


@pytest.fixture
def pg_url(reused_url: str) -> str:
    return reused_url


class Follower:
    """Follow in another thread until the expected number of events has arrived."""

    def __init__(self, ledger: Ledger) -> None:
        self.seen: list[Event] = []
        self._expected: int | None = None
        self._thread = threading.Thread(target=self._follow, args=(ledger,), daemon=True)
        self._thread.start()

    def _follow(self, ledger: Ledger) -> None:
        after = 0
        while self._expected is None or len(self.seen) < self._expected:
            for event in ledger.follow(after, timeout=0.2):
                self.seen.append(event)
                after = event.pos

    def expect(self, count: int) -> list[Event]:
        self._expected = count
        self._thread.join(30)
        return self.seen


def check_order(seen: list[Event], ledger: Ledger) -> None:
    """Each event once, positions ascending, revisions ascending within each job."""
    positions = [event.pos for event in seen]
    assert positions == sorted(set(positions))
    revisions: defaultdict[int, list[int]] = defaultdict(list)
    for event in seen:
        revisions[event.job_id].append(event.rev)
    assert [job for job, revs in revisions.items() if revs != list(range(1, len(revs) + 1))] == []
    assert seen == list(all_events(ledger))


def follow_writers(url: str, follower: Ledger, *, rounds: int) -> None:
    followers = [Follower(follower) for _ in range(2)]
    answered = fleet("workers.write_out_of_order", 4, url=url, rounds=rounds, timeout=600)
    for each in followers:
        check_order(each.expect(sum(answered)), follower)


def test_four_writers_are_followed_without_a_gap(store_url: str, real: Ledger) -> None:
    follow_writers(store_url, real, rounds=40)


@pytest.mark.torture
def test_four_writers_are_followed_for_long_without_a_gap(store_url: str, real: Ledger) -> None:
    follow_writers(store_url, real, rounds=1_000)


def test_an_event_that_commits_late_is_not_missed(postgres_url: str, on_postgres: Ledger) -> None:
    before = on_postgres.enqueue("before")
    first = list(on_postgres.follow(timeout=0.2))
    assert [event.job_id for event in first] == [before.id]
    with psycopg.connect(postgres_url) as connection:
        late = on_postgres.enqueue("late", connection=connection)
        quick = on_postgres.enqueue("quick")
        # Followers wait for the late position. Claims do not.
        assert list(on_postgres.follow(first[-1].pos, timeout=0.5)) == []
        assert [job.id for job in on_postgres.claim("worker", limit=5, start=True)] == [before.id, quick.id]
        connection.commit()

    seen = first + list(on_postgres.follow(first[-1].pos, timeout=0.5))
    assert [event.job_id for event in seen if event.type == "enqueued"] == [before.id, late.id, quick.id]
    check_order(seen, on_postgres)


def test_a_late_event_that_is_rolled_back_delays_no_follower(postgres_url: str, on_postgres: Ledger) -> None:
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("never", connection=connection)
        job = on_postgres.enqueue("quick")
        connection.rollback()
    assert [event.job_id for event in on_postgres.follow(timeout=0.5)] == [job.id]


def test_unused_positions_do_not_stop_a_follower(postgres_url: str, on_postgres: Ledger) -> None:
    """A rollback or a crash of the server leaves positions that no event will have."""
    first = on_postgres.enqueue("first")
    [seen] = on_postgres.follow(timeout=0.2)
    assert seen.job_id == first.id
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue_many([{"kind": "never"}] * 5, connection=connection)
        connection.rollback()
    assert list(on_postgres.follow(seen.pos, timeout=0.2)) == []

    second = on_postgres.enqueue("second")

    assert [event.job_id for event in on_postgres.follow(seen.pos, timeout=1.0)] == [second.id]


def test_a_position_drawn_before_the_transaction_has_an_id_is_not_missed(
    pg_url: str, postgres_url: str, on_postgres: Ledger
) -> None:
    """A caller's transaction that has not written yet is stopped right after it drew its first position."""
    for _ in range(2):
        on_postgres.enqueue("warm")
    schema = sql.Identifier(pg_url.partition("schema=")[2])
    with (
        psycopg.connect(postgres_url, autocommit=True) as gate,
        psycopg.connect(postgres_url) as caller,
    ):
        gate.execute("SELECT pg_advisory_lock(77)")
        gate.execute(
            sql.SQL(
                "CREATE FUNCTION {0}.hold() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END $$"
            ).format(schema)
        )
        gate.execute(
            sql.SQL(
                "CREATE TRIGGER hold BEFORE INSERT ON {0}.event_batches FOR EACH ROW "
                "WHEN (NEW.actor = 'client:slow') EXECUTE FUNCTION {0}.hold()"
            ).format(schema)
        )
        slow = threading.Thread(target=on_postgres.enqueue, args=("slow",), kwargs={"connection": caller, "actor": "slow"})
        slow.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 77"
        wait_until(lambda: gate.execute(waiting).fetchone() == (1,), what="the slow writer has drawn its position")

        quick = on_postgres.enqueue("quick")
        first = list(on_postgres.follow(timeout=0.5))
        gate.execute("SELECT pg_advisory_unlock(77)")
        slow.join(30)
        caller.commit()

    after = first[-1].pos if first else 0
    seen = first + list(on_postgres.follow(after, timeout=0.5))
    assert quick.id in {event.job_id for event in seen}
    check_order(seen, on_postgres)


def test_following_may_start_at_any_position(real: Ledger) -> None:
    real.enqueue_many([{"kind": "work"}] * 2_500)
    seen = list(real.follow(timeout=0.2))
    assert len(seen) == 2_500
    for place in (0, 1, 999, 1_000, 2_499):
        assert next(real.follow(seen[place].pos - 1)) == seen[place]
    assert list(real.follow(seen[-1].pos, timeout=0.05)) == []


def test_two_ledgers_on_one_store_follow_each_other(store_url: str, opened: Opener) -> None:
    one, other = opened(store_url), opened(store_url)
    following = following_of(other)
    made = one.enqueue("work")
    assert next(following).job_id == made.id
    again = one.enqueue("work")
    assert next(following).job_id == again.id
    following.close()
