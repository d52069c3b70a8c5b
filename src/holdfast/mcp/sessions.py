"""Client sessions: the jobs that each session holds, and the heartbeats for them."""

import logging
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from holdfast.agent import Agent, Task
from holdfast.agent.refusals import Suggestions
from holdfast.core import limits
from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.ledger import Ledger
from holdfast.mcp.thread_pool import KeyedThreadPool

BEATS_PER_LEASE = 3


class SessionKey(NamedTuple):
    """The agent's name and session of a call, as in the ledger."""

    name: str
    session: str


class HeldJob:
    """A job that the server holds for a client. `attempt` fences off calls for an earlier attempt."""

    __slots__ = ("attempt", "due_at", "is_beating", "job_id", "lease_s", "lost")

    def __init__(self, task: Task, now: float) -> None:
        assert task.claim_expires_at is not None and task.last_heartbeat_at is not None
        self.job_id = task.id
        self.attempt = task.attempt
        self.lease_s = (task.claim_expires_at - task.last_heartbeat_at).total_seconds()
        self.due_at = now + self.lease_s / BEATS_PER_LEASE
        self.is_beating = False
        self.lost = False


class ClientSession:
    """A session that holds jobs: its agent, its jobs, and when it last called."""

    __slots__ = ("agent", "called_at", "client", "held_jobs", "idle_until")

    def __init__(self, agent: Agent, now: float, client: Hashable = 0) -> None:
        self.agent = agent
        self.client = client
        self.called_at = now
        self.idle_until: float | None = None
        self.held_jobs: dict[int, HeldJob] = {}

    def touch(self, now: float) -> None:
        self.called_at = now
        self.idle_until = None


class TooManyHeldJobs(LimitExceeded):
    """A session holds the maximum number of tasks."""

    action = "Complete, fail or release one of yours first: call list_jobs with mine true."


class TooManySessions(LimitExceeded):
    """The server holds tasks for the maximum number of sessions of this client."""

    action = "Continue with the jobs of your session, or try again when another session has ended."


CALLS_AT_ONCE = 4
"""Concurrent calls of one session. Further calls wait."""
CALLS_AT_ONCE_MAX = 256
"""Concurrent calls of all sessions."""
ENDED_SESSIONS_MAX = 10_000
"""How many ended sessions are remembered, to release jobs that calls still claim for them."""


class DueHeartbeat(NamedTuple):
    """A job whose heartbeat is due. `is_late`: the last heartbeat is still under way after a whole lease."""

    key: SessionKey
    agent: Agent
    held: HeldJob
    is_late: bool


class ClientSessions:
    """All sessions that hold jobs. Every method may be called from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        monotonic: Callable[[], float],
        of_one_max: int = limits.MCP_SESSIONS_MAX,
        labels: Sequence[str] = (),
    ) -> None:
        self.ledger = ledger
        self.of_one_max = of_one_max
        """How many sessions of one client may hold jobs."""
        self.labels = labels
        """What the agents of all clients have, for jobs that require it."""
        self.monotonic = monotonic
        self.changed = threading.Condition()
        self.calls = KeyedThreadPool("holdfast-mcp-call", threads_max=CALLS_AT_ONCE_MAX, per_key_max=CALLS_AT_ONCE)
        self.on_orphan: Callable[[Agent, HeldJob], None] = lambda agent, held: None
        """Called with a job that was claimed for a session that has ended."""
        self._sessions: dict[SessionKey, ClientSession] = {}
        self._ended_sessions: dict[str, None] = {}
        self._closed = False

    def agent(self, key: SessionKey, suggestions: Suggestions | None = None) -> Agent:
        """Return the agent of a session that is calling, and record the activity."""
        with self.changed:
            entry = self._sessions.get(key)
            if entry is None:
                return Agent(
                    self.ledger,
                    key.name,
                    session=key.session,
                    suggestions=suggestions,
                    known_attempt=partial(self.attempt, key),
                    labels=self.labels,
                )
            entry.touch(self.monotonic())
            self.changed.notify_all()
            return entry.agent

    def attempt(self, key: SessionKey, job_id: int) -> int | None:
        """Return the attempt of the job that this session holds, as far as the server knows."""
        with self.changed:
            entry = self._sessions.get(key)
            held = None if entry is None else entry.held_jobs.get(job_id)
            return None if held is None else held.attempt

    def check_capacity(self, key: SessionKey, job_id: int | None, client: Hashable = 0) -> None:
        """Raise limit_exceeded if the session holds too many jobs, or the client has too many sessions.

        `job_id` is the job to be claimed. A session may always claim a job that it holds. A call without `job_id` is allowed,
        because it gets a job of its own session before any other.
        """
        with self.changed:
            entry = self._sessions.get(key)
            if entry is None or entry.idle_until is not None:
                self._check_sessions(client)
            elif job_id is not None and job_id not in entry.held_jobs:
                most = limits.OWN_TASKS_MAX
                if sum(not held.lost for held in entry.held_jobs.values()) >= most:
                    raise TooManyHeldJobs(f"a session holds at most {most} tasks at once", field="tasks", limit=most)

    def _check_sessions(self, client: Hashable) -> None:
        most = min(self.of_one_max, limits.MCP_SESSIONS_MAX)
        busy = [entry.client for entry in self._sessions.values() if entry.idle_until is None]
        if busy.count(client) >= most or len(busy) >= limits.MCP_SESSIONS_MAX:
            raise TooManySessions(f"tasks are held for at most {most} sessions at once", field="sessions", limit=most)

    def track(self, agent: Agent, task: Task, client: Hashable = 0) -> None:
        """Record from the ledger's answer whether this session holds the job.

        Answers about an attempt before the held one are outdated and ignored. A job for a session that has ended meanwhile is
        passed to `on_orphan`.
        """
        key = SessionKey(agent.name, agent.session)
        if task.attempt < (self.attempt(key, task.id) or 0):
            return
        if task.claim_expires_at is None or (task.claimed_by, task.session) != key:
            self.drop(key, task.id)
            return
        with self.changed:
            now = self.monotonic()
            if self._closed or key.session in self._ended_sessions:
                self.on_orphan(agent, HeldJob(task, now))
                return
            entry = self._sessions.get(key)
            if entry is None:
                entry = self._sessions[key] = ClientSession(agent, now, client)
            entry.touch(now)
            entry.held_jobs[task.id] = HeldJob(task, now)
            self.changed.notify_all()

    def drop(self, key: SessionKey, job_id: int) -> None:
        """Forget a job that the session has ended or lost."""
        with self.changed:
            entry = self._sessions.get(key)
            if entry is not None:
                entry.held_jobs.pop(job_id, None)
                if not entry.held_jobs:
                    del self._sessions[key]

    def end_sessions(self, session: str | None = None) -> Iterator[tuple[Agent, HeldJob]]:
        """End a session, or all sessions. Return the jobs that were held for them."""
        with self.changed:
            if session is None:
                self._closed = True
            else:
                self._ended_sessions[session] = None
                if len(self._ended_sessions) > ENDED_SESSIONS_MAX:
                    del self._ended_sessions[next(iter(self._ended_sessions))]
            keys = [key for key in self._sessions if session is None or key.session == session]
            sessions = [self._sessions.pop(key) for key in keys]
        return ((entry.agent, held) for entry in sessions for held in entry.held_jobs.values() if not held.lost)

    def mark_idle(self, idle_s: float) -> list[SessionKey]:
        """Mark sessions that have not called for `idle_s` as idle and return them. Forget idle ones whose leases have ended.

        For HeartbeatThread, under the lock.
        """
        now, idle = self.monotonic(), []
        for key, entry in list(self._sessions.items()):
            if entry.idle_until is None and now - entry.called_at >= idle_s:
                entry.idle_until = now + max(held.lease_s for held in entry.held_jobs.values())
                idle.append(key)
            elif entry.idle_until is not None and now >= entry.idle_until:
                del self._sessions[key]
        return idle

    def take_due(self) -> list[DueHeartbeat]:
        """Return the due heartbeats and mark them as under way. For HeartbeatThread, under the lock."""
        now, due = self.monotonic(), []
        for key, entry, held in self._kept_alive():
            if held.due_at <= now:
                due.append(DueHeartbeat(key, entry.agent, held, held.is_beating))
                held.due_at = math.inf if held.is_beating else now + held.lease_s
                held.is_beating = True
        return due

    def _kept_alive(self) -> Iterator[tuple[SessionKey, ClientSession, HeldJob]]:
        for key, entry in self._sessions.items():
            if entry.idle_until is None:
                yield from ((key, entry, held) for held in entry.held_jobs.values() if not held.lost)

    def next_at(self, idle_s: float) -> float | None:
        """Return the time of the next heartbeat or idle check, None if there is none. Under the lock."""
        ends = [entry.called_at + idle_s if entry.idle_until is None else entry.idle_until for entry in self._sessions.values()]
        return min([*ends, *(held.due_at for _, _, held in self._kept_alive())], default=None)

    def is_held(self, key: SessionKey, held: HeldJob) -> bool:
        """Return whether this is still the current record of the job. Under the lock."""
        entry = self._sessions.get(key)
        return entry is not None and entry.held_jobs.get(held.job_id) is held


log = logging.getLogger("holdfast.mcp")

RETRIES_PER_LEASE = 10
"""A failed heartbeat is retried after the lease divided by this number."""
BEATS_AT_ONCE = 16
"""A heartbeat that waits for a locked row takes up one of these."""
RELEASES_AT_ONCE = 16
SHUTDOWN_S = 5.0
"""How long releasing jobs may take at the end. The leases of jobs that are left then expire."""


class HeartbeatThread:
    """A thread that sends a heartbeat at a third of each lease, until the job's client has not called for `idle_s`.

    After that the leases expire. Leaving the context ends the heartbeats and releases the held jobs, unless `keep` is set.
    That takes at most SHUTDOWN_S; `is_stuck` is true if a call is still under way then.
    """

    def __init__(self, sessions: ClientSessions, idle_s: float, *, keep: bool) -> None:
        self._sessions = sessions
        self._idle_s = idle_s
        self._keep = keep
        self._closed = False
        self._beat_pool = KeyedThreadPool("holdfast-mcp-beat", threads_max=BEATS_AT_ONCE, per_key_max=1)
        self._release_pool = KeyedThreadPool("holdfast-mcp-release", threads_max=RELEASES_AT_ONCE, per_key_max=1)
        self._thread = threading.Thread(target=self._run, name="holdfast-mcp-heartbeats", daemon=True)
        self.is_stuck = False
        sessions.on_orphan = self._release_later

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._sessions.changed:
            self._closed = True
            self._sessions.changed.notify_all()
        self._thread.join()
        self.end_session()
        until = self._sessions.monotonic() + SHUTDOWN_S
        # Calls come first: a call that is under way may still claim a job that has to be released.
        calls, beats, held = (
            pool.wait_for_idle(until - self._sessions.monotonic())
            for pool in (self._sessions.calls, self._beat_pool, self._release_pool)
        )
        self.is_stuck = bool(calls or beats or held)
        if self.is_stuck:
            log.warning("the ledger does not answer: leases of held jobs will expire", extra={"jobs": held, "calls": calls})

    def end_session(self, session: str | None = None) -> None:
        """End a session, or all sessions, and release their jobs, so that others can claim them."""
        for agent, held in self._sessions.end_sessions(session):
            self._release_later(agent, held)

    def _release_later(self, agent: Agent, held: HeldJob) -> None:
        if not self._keep:
            self._release_pool.submit(held.job_id, partial(_release, agent, held))

    def _run(self) -> None:
        changed = self._sessions.changed
        while True:
            with changed:
                if self._closed:
                    return
                idle, due = self._sessions.mark_idle(self._idle_s), self._sessions.take_due()
                if not due and not idle:
                    next_at = self._sessions.next_at(self._idle_s)
                    changed.wait(None if next_at is None else max(0.0, next_at - self._sessions.monotonic()))
            for key in idle:
                log.info("session is idle: its leases will expire", extra={"agent": key.name, "session": key.session})
            for heartbeat in due:
                if heartbeat.is_late:
                    extra = {"job_id": heartbeat.held.job_id, "attempt": heartbeat.held.attempt}
                    log.warning("a heartbeat has been under way for longer than its lease", extra=extra)
                else:
                    self._beat_pool.submit(heartbeat.held.job_id, partial(self._beat, heartbeat))

    def _beat(self, due: DueHeartbeat) -> None:
        key, agent, held, _ = due
        with self._sessions.changed:
            if self._closed or not self._sessions.is_held(key, held):
                return
            sent = self._sessions.monotonic()
        lost, message, times_per_lease = False, "", BEATS_PER_LEASE
        try:
            agent.heartbeat(held.job_id, attempt=held.attempt)
        except Exception as error:  # noqa: BLE001 - a heartbeat is retried after any error
            lost, message = isinstance(error, HoldfastError) and not error.retryable, str(error)
            times_per_lease = RETRIES_PER_LEASE
        with self._sessions.changed:
            held.lost, held.is_beating = lost, False
            held.due_at = sent + held.lease_s / times_per_lease
            ended = not self._sessions.is_held(key, held)
            self._sessions.changed.notify_all()
        if message and not ended:
            extra = {"job_id": held.job_id, "attempt": held.attempt, "error": message}
            log.warning("the job is lost" if lost else "a heartbeat failed", extra=extra)


def _release(agent: Agent, held: HeldJob) -> None:
    try:
        agent.release(held.job_id, attempt=held.attempt)
    except HoldfastError as error:
        log.warning("could not hand a job back", extra={"job_id": held.job_id, "error": str(error)})
    else:
        log.info("handed back", extra={"job_id": held.job_id, "attempt": held.attempt})
