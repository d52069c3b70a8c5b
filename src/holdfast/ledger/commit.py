"""The commit pipeline. Every change of a ledger goes through it.

    request → group → one transaction (`execute`) → result → wake-ups and metrics

Requests that arrive at the same time share a transaction (`GroupCommit`). A request that met a row locked by another transaction
is run again by itself, so that no other request waits for that lock.
"""

import contextlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import methodcaller
from typing import Any, TypeVar

from holdfast.core.commands import ClaimNext, Enqueue, Replay
from holdfast.errors import HoldfastError, Unavailable
from holdfast.ledger import metrics
from holdfast.ledger.dispatch import execute
from holdfast.ledger.groups import GroupCounter
from holdfast.ledger.requests import Request, Result, is_locked, repeats
from holdfast.ledger.signing import Signer
from holdfast.store.base import END_TRANSACTION_ACTION, Contention, Lane, StatementFailed, Store, lock_refusal
from holdfast.store.callers import unwrap, use_connection
from holdfast.store.rows import BATCH_EVENTS_MAX, ClaimedJobs
from holdfast.store.session import Session
from holdfast.watch.process import Metrics

T = TypeVar("T")

GROUP_MAX = 1_000
"""Commands in one transaction, unless a single request alone has more."""
ALONE_MAX = 8
"""Requests that run outside of groups at the same time. Each has a connection of its own."""
ALONE_SECONDS = 30.0
"""How long such a request waits for its turn."""
PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, *[0.25] * 19)
"""Pauses, in seconds, before each retry of a request that met a lock of another transaction. Together they take 5 s, or about 8 s
if each try also waits for the lock."""
MANY_PAUSES = PAUSES[:13]
"""The same for requests on many jobs, and in a caller's own transaction: about 2 s."""

Run = Callable[[list[Request]], Sequence[Result | Exception]]
"""Runs a group. Returns a result or an error for each request; raises HoldfastError if the whole group failed."""


class _Entry:
    """Requests in the queue of a group commit, and the thread that waits for them."""

    __slots__ = ("done", "outcomes", "requests", "wakeup")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.outcomes: Sequence[Result | Exception] = ()
        """Set after the commit, or when the requests have failed. One for each."""
        self.wakeup = threading.Lock()
        """Acquired until the thread may continue."""
        self.wakeup.acquire()
        self.done = False
        """The leader has run the requests. A thread that wakes up with requests that are not done is the next leader."""

    def wake(self) -> None:
        """Let the waiting thread continue. This may be called again."""
        if self.wakeup.locked():
            self.wakeup.release()


class GroupCommit:
    """Combine concurrent requests into one transaction.

    The first thread to arrive becomes the leader. It takes every waiting request, runs them in one transaction and wakes their
    threads. There is no background thread and no timer. If the leader is interrupted, followers that have no result yet get
    Unavailable with an unknown outcome, and the next waiting thread becomes the leader.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._mutex = threading.Lock()
        self._waiting: deque[_Entry] = deque()
        self._leader: _Entry | None = None
        self._group: list[_Entry] = []
        """The group that the leader runs."""
        self._pid = os.getpid()

    def submit(self, requests: Sequence[Request]) -> Sequence[Result | Exception]:
        """Run requests in the next group. Return a result or an error for each: its own, or that of the whole group."""
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)
        entry = _Entry(requests)
        try:
            with self._mutex:
                self._waiting.append(entry)
                if self._leader is None:
                    self._leader = entry
            if self._leader is not entry:
                entry.wakeup.acquire()
            if not entry.done:
                with self._mutex:
                    self._take_group()
                group = [one for member in self._group for one in member.requests]
                try:
                    outcomes = self._run(group)
                except HoldfastError as error:
                    outcomes = [failure_of(one, error) for one in group]
                found = iter(outcomes)
                for member in self._group:
                    member.outcomes = list(islice(found, len(member.requests)))
                with self._mutex:
                    self._finish()
        except BaseException as error:
            self._leave_uninterrupted(entry, error)
            raise
        return entry.outcomes

    def _take_group(self) -> None:
        size = 0
        group: list[_Entry] = []
        for entry in self._waiting:
            size += sum(len(request.commands) for request in entry.requests)
            if group and size > GROUP_MAX:
                break
            group.append(entry)
        self._group = group
        for _ in group:
            self._waiting.popleft()

    def _finish(self) -> None:
        """Wake the threads of the group and set the next leader. The caller holds the mutex.

        An interrupt may come after any step. The interrupted thread then calls this again, as long as it is the leader. So the
        next leader is woken first, and `_leader` is set last.
        """
        for entry in self._group:
            entry.done = True
            entry.wake()
        self._group = []
        following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.wake()
        self._leader = following

    def _leave_uninterrupted(self, entry: _Entry, error: BaseException) -> None:
        """Leave, and start again if that is interrupted as well."""
        while True:
            try:
                return self._leave(entry, error)
            except BaseException as again:  # noqa: BLE001 - the first one is on its way to the caller
                error = again

    def _leave(self, entry: _Entry, error: BaseException) -> None:
        """Remove an interrupted thread's request. If it led a group, the group's other requests have an unknown outcome."""
        with self._mutex:
            led = self._group if self._leader is entry else []
            for one in led:
                if not one.outcomes:
                    interrupted = Unavailable(f"the thread that ran this call was interrupted: {error!r}", outcome="unknown")
                    one.outcomes = [failure_of(request, interrupted) for request in one.requests]
            for one in (entry, *led):
                if one in self._waiting:
                    self._waiting.remove(one)
            if self._leader is entry:
                self._finish()


class CommitPipeline:
    """Runs requests: choose the lane, retry locked rows, count the answers and wake workers."""

    def __init__(self, store: Store, metrics: Metrics, signer: Signer) -> None:
        self._store = store
        self._signer = signer
        self._metrics = metrics
        self._groups: dict[Lane, GroupCommit] = {
            lane: GroupCommit(partial(self._run_group, lane)) for lane in store.lanes() if lane != "keyed"
        }
        self._alone = threading.BoundedSemaphore(ALONE_MAX)
        self._group_counts = GroupCounter(store, metrics)

    def submit(self, request: Request) -> Result:
        """Run a request in the next group. Then run its locked commands again, outside of the groups.

        Enqueues with a dedupe key and replays (the lane "keyed") may wait for another transaction, so they run outside of the
        groups where the store has that lane.
        """
        try:
            lane = _lane(request)
            if lane == "keyed" and lane in self._store.lanes():
                result = self._run_alone(lane, request, careful=False)
            else:
                [outcome] = self._groups.get(lane, self._groups["work"]).submit([request])
                if isinstance(outcome, Exception):
                    raise outcome
                result = outcome
            if result.locked:
                result = self._retry_locked(lane, request, result)
        except HoldfastError as error:
            metrics.count_refusal(self._metrics, error)
            raise
        repeats.count += result.repeated
        metrics.count_answers(self._metrics, result)
        self._group_counts.update()
        return result

    def submit_all(self, requests: Sequence[Request]) -> Sequence[Result | Exception]:
        """Run requests of several callers together. Return a result or an error for each.

        They are enqueues without a dedupe key. One whose id another transaction uses is not retried: its result is `locked`.
        """
        outcomes = self._groups["work"].submit(requests)
        for outcome in outcomes:
            if isinstance(outcome, HoldfastError):
                metrics.count_refusal(self._metrics, outcome)
            elif isinstance(outcome, Result) and not outcome.locked:
                metrics.count_answers(self._metrics, outcome)
        return outcomes

    def submit_within(self, connection: Any, request: Request) -> Result:
        """Run a request in the caller's own transaction. The metrics count it now: the ledger never learns whether it commits."""
        with self._counting_refusals():
            result = self._run_within(connection, request)
        metrics.count_answers(self._metrics, result)
        return result

    def claim(self, request: Request) -> Result:
        """Run a claim whose answer is not kept: one statement without a group, where claims have a lane of their own."""
        if "claim" not in self._groups:
            return self.submit(request)
        [command] = request.commands
        assert isinstance(command, ClaimNext)
        result = Result(request)
        claimed, rest = self.run_statement(methodcaller("claim_statement", command), again=False)
        result.answers = [claimed if rest is None else self._claim_rest(claimed, rest)]
        result.changed = bool(result.answers[0])
        metrics.count_answers(self._metrics, result)
        if result.changed:
            self._store.wake([])
        return result

    def _claim_rest(self, claimed: ClaimedJobs, rest: ClaimNext) -> ClaimedJobs:
        """Claim the rest of a command, which came to a queue with subqueues, in a transaction.

        If that fails, the jobs that the statement has claimed are the answer.
        """
        try:
            more = self._retry(partial(self._store.transact, "claim", lambda session: session.claim(rest)), PAUSES[:2])
        except HoldfastError:
            if not claimed:
                raise
            return claimed
        return claimed.joined(more) if claimed else more

    def settle_alike(self, ids: Sequence[int], token: str, attempt: int, payload: bytes, request_id: str) -> Sequence[int] | None:
        """Complete jobs of one claim by one statement without a group. If it meets a lock, it completes none.

        It may run twice if the connection breaks. The second run completes nothing then.
        """
        try:
            with self._counting_refusals():
                done = self._store.write_statement(methodcaller("settle_alike", ids, token, attempt, payload, request_id))
        except (Contention, StatementFailed):
            return ()
        if done is None or done:
            self._store.wake([])
            self._group_counts.update()
        return done  # type: ignore[no-any-return]

    def transact(self, work: Callable[[Session], T], *, wait: bool = True) -> T:
        """Run a transaction that is not a command on a job. Without `wait`, try only once if something is locked."""
        pauses = PAUSES if wait else PAUSES[:1]
        with self._counting_refusals():
            answer = self._retry(partial(self._store.transact, "work", work), pauses, name_holder=wait)
        self._group_counts.update()
        return answer

    def count_group(self, name: str) -> None:
        """Bring the counts of one group up to date, and make its follow-up jobs that are due."""
        with self._counting_refusals():
            self._retry(partial(self._group_counts.update_one, name), PAUSES)

    def count_groups(self, made: Counter[str]) -> None:
        """Bring the counts of all groups up to date, and count the jobs that this makes in `made`."""
        self._group_counts.update_all(made)

    def run_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run one statement that is not a command on a job. It may be run twice, unless `again` is False."""
        with self._counting_refusals():
            return self._retry(partial(self._store.write_statement, work, again=again), PAUSES[:2])

    # Steps

    @contextlib.contextmanager
    def _counting_refusals(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError as error:
            metrics.count_refusal(self._metrics, error)
            raise

    def _run_group(self, lane: Lane, requests: list[Request]) -> Sequence[Result | Exception]:
        """Run a group in one transaction. Other requests wait meanwhile, so this waits for a lock only once, and briefly."""
        work = partial(execute, requests, self._signer, careful=False)
        try:
            return self._store.transact_enqueue(work) if _is_one_enqueue(requests) else self._store.transact(lane, work)
        except Exception as error:  # noqa: BLE001 - handled by the type of the error
            return [_outcome_after(requests[0], error)] if len(requests) == 1 else self._run_group_again(lane, requests, error)

    def _run_group_again(self, lane: Lane, requests: list[Request], error: Exception) -> Sequence[Result | Exception]:
        """Run a group again after an error: as a whole if a row was locked, else each request by itself.

        After any error but Unavailable and a locked row, one request is at fault, and only that one must fail.
        """
        if isinstance(error, Contention):
            try:
                return self._store.transact(lane, partial(execute, requests, self._signer, careful=True))
            except Exception as again:  # noqa: BLE001 - handled by the type of the error
                error = again
        if isinstance(error, Unavailable):
            raise error
        if isinstance(error, Contention):
            return [_outcome_after(request, error) for request in requests]
        return [self._run_one(lane, request, careful=True) for request in requests]

    def _run_one(self, lane: Lane, request: Request, *, careful: bool) -> Result | Exception:
        try:
            [result] = self._store.transact(lane, partial(execute, [request], self._signer, careful=careful))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            return _outcome_after(request, error)
        return result

    def _run_alone(self, lane: Lane, request: Request, *, careful: bool = True) -> Result:
        """Run a request outside of the groups."""
        if not self._alone.acquire(timeout=ALONE_SECONDS):
            raise Unavailable("too many calls wait for locks of other transactions", locked=True)
        try:
            outcome = self._run_one(lane, request, careful=careful)
        finally:
            self._alone.release()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _retry_locked(self, lane: Lane, request: Request, result: Result) -> Result:
        """Run again what is locked of a request. If that is everything, run the request itself: its answer may be kept."""
        for pause in _pauses(request):
            _sleep(pause)
            places = [place for place, answer in enumerate(result.answers) if is_locked(answer)]
            if len(places) == len(result.answers):
                result = self._run_alone(lane, request)
            else:
                result = self._retry_part(lane, result, places)
            if not result.locked:
                return result
        if len(result.answers) == 1:
            result.answers = [self._with_lock_holder(result.answers[0])]
        return result

    def _retry_part(self, lane: Lane, before: Result, places: list[int]) -> Result:
        """Run some commands of a request again. The others are committed, so a failure is the answer to these commands alone."""
        request = before.request
        commands = [request.commands[place] for place in places]
        job_ids = {getattr(command, "job_id", None) for command in commands}
        beats = [beat for beat in request.beats if beat.job_id in job_ids]
        try:
            part = self._run_alone(lane, Request(request.verb, commands, beats=beats))
        except HoldfastError as error:
            part = Result(Request(request.verb, commands))
            part.answers = [error] * len(places)
        merged = Result(request)
        merged.answers = list(before.answers)
        for place, answer in zip(places, part.answers, strict=True):
            merged.answers[place] = answer
        merged.locked, merged.changed = part.locked, before.changed or part.changed
        merged.repeated = before.repeated or part.repeated
        merged.outcomes, merged.queues = before.outcomes + part.outcomes, before.queues | part.queues
        return merged

    def _with_lock_holder(self, refused: Unavailable) -> Unavailable:
        """Return the refusal, with the transaction that holds the lock if the store can name it."""
        job_id = refused.context.get("job_id")
        holder = None if "request_id" in refused.context else self._store.lock_holder(job_id)
        if holder is None:
            return refused
        found = Unavailable(f"{refused.message}: {holder}", locked=True, **({} if job_id is None else {"job_id": job_id}))
        found.action = END_TRANSACTION_ACTION
        return found

    def _run_within(self, connection: Any, request: Request) -> Result:
        try:
            use_connection()
            connection = unwrap(connection)
            queues = sorted({command.queue for command in request.commands if isinstance(command, Enqueue)})
            work = partial(execute, [request], self._signer, careful=False)
            [result] = self._store.within(connection, work, queues)
            for pause in MANY_PAUSES[1:]:
                if result.locked:
                    _sleep(pause)
                    [result] = self._store.within(connection, work, queues)
        except Contention as error:
            raise lock_refusal(error, self._store.lock_holder()) from error
        except StatementFailed as error:
            raise _statement_refusal(error) from error
        if result.locked:
            raise result.answers[0]
        return result

    def _retry(self, work: Callable[[], T], pauses: Sequence[float], *, name_holder: bool = False) -> T:
        """Run `work`, and again after each pause while it meets locks. With `name_holder`, the refusal says who has the lock."""
        for number, pause in enumerate(pauses, 1):
            _sleep(pause)
            try:
                return work()
            except StatementFailed as error:
                raise _statement_refusal(error) from error
            except Contention as error:
                if number == len(pauses):
                    raise lock_refusal(error, self._store.lock_holder() if name_holder else None) from error
        raise AssertionError("unreachable")


def _is_one_enqueue(requests: Sequence[Request]) -> bool:
    """Return whether the requests are enqueues that one statement can do: no answer is kept, no job has a key, a
    dependency or a group."""
    return sum(len(request.commands) for request in requests) <= BATCH_EVENTS_MAX and all(
        request.verb == "enqueue"
        and not request.keep
        and all(type(command) is Enqueue and command.dedupe_key is None and command.group is None for command in request.commands)
        for request in requests
    )


def only_answer(result: Result) -> Any:
    """Return the answer of a request that has one command. Raise it if it is an error."""
    [answer] = result.answers
    if isinstance(answer, HoldfastError):
        raise answer
    return answer


def failure_of(request: Request, error: Exception) -> Exception:
    """Return the error of a request that failed as a whole. If the caller may send it again, attach the request id."""
    if isinstance(error, Unavailable) and error.retryable:
        action = error.action
        error = Unavailable(error.message, outcome=error.outcome, locked=error.locked, request_id=request.commands[0].request_id)
        error.action = action
    return error


def _outcome_after(request: Request, error: Exception) -> Result | Exception:
    """Return the outcome of a request whose transaction raised `error`."""
    if isinstance(error, Contention):
        result = Result(request)
        result.answers, result.locked = [lock_refusal(error, None)] * len(request.commands), True
        return result
    return failure_of(request, _statement_refusal(error) if isinstance(error, StatementFailed) else error)


def _statement_refusal(error: StatementFailed) -> Unavailable:
    return Unavailable(f"the database refused this: {error}")


def _pauses(request: Request) -> Sequence[float]:
    if not request.waits:
        return PAUSES[:1]
    return PAUSES if len(request.commands) == 1 else MANY_PAUSES


def _sleep(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def _lane(request: Request) -> Lane:
    first = request.commands[0]
    if isinstance(first, ClaimNext):
        return "claim"
    if isinstance(first, Replay):
        return "keyed"
    if isinstance(first, Enqueue) and any(getattr(command, "dedupe_key", None) for command in request.commands):
        return "keyed"
    return "work"
