"""Group commit: many callers share a transaction, and each gets its own outcome."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import HoldfastError, Job, Ledger, Unavailable
from tests.integration.programs.interrupted import transact_methods
from tests.support.histories import all_events, count_jobs, problems
from tests.support.processes import Program
from tests.support.waiting import wait_until


class Hook:
    """Wrap the store for group commit: count transactions, and stop or break one of them."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = ledger
        self.count = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.break_with: BaseException | None = None
        self.sync_seconds = 0.0
        """Additional time of a commit, as a disk needs it, if the store is kept in memory."""
        self._hold = False
        for name in transact_methods(ledger):
            monkeypatch.setattr(ledger._store, name, partial(self._run, getattr(ledger._store, name)))

    def _run(self, transact: Callable[..., Any], *call: Any) -> Any:
        *lane, work = call
        self.count += 1
        if self._hold:
            self._hold = False
            answer = transact(*lane, work)
            self.entered.set()
            assert self.go_on.wait(30)
            return answer
        if self.break_with is not None:
            error, self.break_with = self.break_with, None

            def broken(session: Any) -> Any:
                work(session)
                raise error

            return transact(*lane, broken)
        answer = transact(*lane, work)
        time.sleep(self.sync_seconds)
        return answer

    def hold(self) -> None:
        """Stop the leader of the next transaction right after its commit."""
        self._hold = True

    def gather(self, pool: ThreadPoolExecutor, calls: "list[Callable[[], Any]]") -> "list[Future[Any]]":
        """Run all calls in one group, behind a leader that continues now."""
        self.hold()
        leader = pool.submit(self.ledger.enqueue, "leader")
        assert self.entered.wait(30)
        futures = []
        waiting = self.ledger._pipeline._groups["work"]._waiting
        for number, call in enumerate(calls, 1):
            futures.append(pool.submit(call))
            wait_until(lambda number=number: len(waiting) == number)  # type: ignore[misc]
        self.go_on.set()
        assert isinstance(leader.result(30), Job)
        return futures


@pytest.fixture
def hook(real: Ledger, monkeypatch: pytest.MonkeyPatch) -> Hook:
    real.enqueue("warm")
    return Hook(real, monkeypatch)


def test_calls_of_64_threads_share_transactions(real: Ledger, hook: Hook) -> None:
    together = threading.Barrier(64)
    hook.sync_seconds = 0.005

    def work(number: int) -> None:
        together.wait(30)
        for _ in range(10):
            real.enqueue("work", {"by": number})

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))

    assert count_jobs(real) == 641
    assert hook.count < 640 / 4
    assert problems(real) == []


def test_calls_of_64_threads_share_commits(pg_url: str, postgres_url: str, on_postgres: Ledger) -> None:
    """By the server's own count, with notifications."""
    name = pg_url.partition("schema=")[2]
    # In a separate database no other session is counted.
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            import holdfast

            ledger = holdfast.open(postgres_url.rpartition("/")[0] + f"/{name}")
            commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
            before = admin.execute(commits, (name,)).fetchone()
            with ThreadPoolExecutor(64) as pool:
                list(pool.map(lambda number: ledger.enqueue("work"), range(1_000)))
            # Closed connections have reported their commits.
            ledger.close()
            gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            wait_until(lambda: admin.execute(gone, (name,)).fetchone() == (0,))
            after = admin.execute(commits, (name,)).fetchone()
            assert before is not None
            assert after is not None
            assert after[0] - before[0] < 500
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_calls_of_one_group_share_a_transaction(real: Ledger, hook: Hook) -> None:
    with ThreadPoolExecutor(9) as pool:
        calls = hook.gather(pool, [lambda number=number: real.enqueue("work", {"n": number}) for number in range(8)])  # type: ignore[misc]
        jobs = [call.result(30) for call in calls]
    assert hook.count == 2
    assert [real.get(job.id).args["n"] for job in jobs] == list(range(8))


def test_one_job_keeps_the_order_of_its_commands_within_a_group(real: Ledger, hook: Hook) -> None:
    job = real.claim_job(real.enqueue("work").id, "worker")
    fence = job.fence
    with ThreadPoolExecutor(9) as pool:
        calls = hook.gather(
            pool,
            [
                lambda: real.start(fence),
                lambda: real.heartbeat(fence, progress=1),
                lambda: real.heartbeat(fence),
                lambda: real.assist(job.id),
                lambda: real.complete(fence, "done"),
                lambda: real.heartbeat(fence),
            ],
        )
        assert [call.result(30).rev for call in calls[:5]] == [3, 4, 5, 6, 7]
        late = calls[5].exception(30)
    assert isinstance(late, HoldfastError)
    assert late.code in ("invalid_transition", "fence_lost")
    assert problems(real) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), Unavailable("no disk")])
def test_every_follower_gets_an_answer_when_the_leader_fails(real: Ledger, hook: Hook, error: BaseException) -> None:
    """The leader fails before its commit: nothing was committed, and no call may report success."""
    with ThreadPoolExecutor(9) as pool:
        hook.hold()
        first = pool.submit(real.enqueue, "leader")
        assert hook.entered.wait(30)
        waiting = real._pipeline._groups["work"]._waiting
        answers: list[object] = []

        def call(number: int) -> None:
            try:
                answers.append(real.enqueue("work", {"n": number}, request_id=f"r-{number}"))
            except BaseException as caught:  # noqa: BLE001 - the leader gets every error that broke it
                answers.append(caught)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda number=number: len(waiting) == number)  # type: ignore[misc]
        hook.break_with = error
        hook.go_on.set()
        first.result(30)
        for thread in threads:
            thread.join(30)

    assert len(answers) == 6
    # The leader gets the error itself. The others learn that their call failed.
    followers = [answer for answer in answers if answer is not error]
    assert len(followers) >= 5
    assert [type(answer) for answer in followers] == [Unavailable] * len(followers)
    assert {job.kind for job in real.list()} == {"warm", "leader"}
    assert real.enqueue("after").id > 0
    assert problems(real) == []


def test_an_error_in_the_leader_affects_no_other_call(real: Ledger, hook: Hook) -> None:
    """Every call with an answer has one job, and no other call has one."""
    with ThreadPoolExecutor(9) as pool:
        hook.hold()
        pool.submit(real.enqueue, "leader")
        assert hook.entered.wait(30)
        waiting = real._pipeline._groups["work"]._waiting
        calls = []
        for number in range(6):
            calls.append(pool.submit(real.enqueue, "work", {"n": number}, request_id=f"r-{number}"))
            wait_until(lambda number=number: len(waiting) == number + 1)  # type: ignore[misc]
        hook.break_with = RuntimeError("broken")
        hook.go_on.set()
        answered = {call.result().id for call in calls if call.exception(30) is None}
    assert {job.id for job in real.list(kind="work")} == answered
    assert real.enqueue("after").is_new
    assert problems(real) == []


def test_an_error_after_an_enqueue_in_one_message_is_an_unknown_outcome(real: Ledger, hook: Hook) -> None:
    """Such an enqueue is committed by its statement. It must not run again."""
    hook.break_with = RuntimeError("broken")
    with pytest.raises((Unavailable, RuntimeError)) as caught:
        real.enqueue("work")
    is_unknown = getattr(caught.value, "outcome", "none") == "unknown"
    assert len(real.list(kind="work")) == is_unknown
    assert is_unknown or real._store.lanes() == ("work",), "on SQLite the transaction is rolled back"


def test_an_interrupted_follower_blocks_no_later_group(store_url: str) -> None:
    with Program("interrupted", "follower", store_url) as program:
        interrupted, answers, after, kinds = program.answer()
        program.wait()
    assert (interrupted, answers, after) == (True, 2, True)
    # A waiting call was not sent.
    assert kinds == ["after", "behind", "leader"]


def interrupt_callers(url: str, ledger: Ledger, seconds: float) -> None:
    with Program("interrupted", "interrupt_anywhere", url, seconds) as program:
        open_again, stuck, interrupted, answered, counts, surprises = program.answer()
    assert interrupted > 10
    assert open_again
    assert stuck == [False, False]
    assert surprises == []
    # Every call with an answer has a job.
    kinds = [event.payload["kind"] for event in all_events(ledger)]
    assert kinds.count("main") >= answered
    assert kinds.count("other") >= sum(counts)
    assert problems(ledger) == []


def test_many_interrupts_block_no_later_group(store_url: str, real: Ledger) -> None:
    interrupt_callers(store_url, real, 3)


@pytest.mark.torture
def test_very_many_interrupts_block_no_later_group(store_url: str, real: Ledger) -> None:
    interrupt_callers(store_url, real, 60)


def poison(store_url: str, postgres_url: str) -> None:
    """Make the database refuse jobs of one kind."""
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(10_000)
        connection.execute(
            "CREATE TRIGGER poison BEFORE INSERT ON holdfast_jobs WHEN NEW.kind = 'poison' "
            "BEGIN SELECT RAISE(ABORT, 'poison is refused'); END"
        )
        connection.close()
    else:
        table = f"{store_url.partition('schema=')[2]}.jobs"
        with psycopg.connect(postgres_url, autocommit=True) as connection_to_server:
            connection_to_server.execute(f"ALTER TABLE {table} ADD CHECK (kind <> 'poison')".encode())


def test_only_the_faulty_call_of_a_group_fails(real: Ledger, hook: Hook, store_url: str, postgres_url: str) -> None:
    poison(store_url, postgres_url)
    [job] = real.claim("worker", start=True)
    fence = job.fence
    with ThreadPoolExecutor(9) as pool:
        calls = hook.gather(
            pool,
            [
                lambda: real.enqueue("good", {"n": 0}),
                lambda: real.heartbeat(fence),
                lambda: real.enqueue("poison"),
                lambda: real.enqueue_many([{"kind": "good"}, {"kind": "poison"}]),
                lambda: real.complete(fence),
                lambda: real.enqueue("good", {"n": 1}),
            ],
        )
        failures = [call.exception(30) for call in calls]
    assert [failure is None for failure in failures] == [True, True, False, False, True, True]
    assert all(isinstance(failure, Unavailable) and failure.outcome == "none" for failure in failures[2:4])
    assert sorted(job.kind for job in real.list()) == ["good", "good", "leader", "warm"]
    assert real.get(job.id).status == "succeeded"
    assert problems(real) == []


def test_a_faulty_call_without_a_group_raises_its_error(real: Ledger, store_url: str, postgres_url: str) -> None:
    poison(store_url, postgres_url)
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            real.enqueue("poison")
        assert caught.value.outcome == "none"
    assert real.enqueue("good").is_new
    assert count_jobs(real) == 1


@pytest.mark.parametrize("close", ["close", "leave"])
def test_a_forked_child_cannot_use_the_ledger_and_the_parent_continues(store_url: str, close: str) -> None:
    with Program("forked", store_url, close) as program:
        refusals, status, after, kinds = program.answer()
        program.wait()
    closed = refusals.pop("close", "answered")
    assert closed == "answered"
    assert {name: code for name, code in refusals.items() if code != "unavailable"} == {}
    assert status == 0
    assert after == ["answered"] * 6
    assert kinds == [["before", "succeeded"], ["before", "claimed"], ["before", "claimed"], ["after", "queued"]]
