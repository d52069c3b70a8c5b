"""Client sessions: the jobs that each session holds, and the heartbeats for them."""

import logging
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from holdfast.agent import Agent, Task
from holdfast.agent.refusals import Suggestions
from holdfast.agent.tasks import beat_of
from holdfast.core import limits
from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.keeping.leases import TICK_SECONDS, Fields, KeptLease, LeaseKeeper
from holdfast.keeping.service import ServiceLoop
from holdfast.ledger import Beat, Ledger
from holdfast.mcp.thread_pool import KeyedThreadPool

BEATS_PER_LEASE = 3
RETRIES_PER_LEASE = 10
"""A failed heartbeat is retried after the lease divided by this number."""


class SessionKey(NamedTuple):
    """The agent's name and session of a call, as in the ledger."""

    name: str
    session: str


class HeldTask(KeptLease):
    """A task that the server holds for a client. `attempt` fences off calls for an earlier attempt."""

    is_beating = False
    """A heartbeat is under way, or waits for a thread."""

    def __init__(self, agent: Agent, task: Task, now: float) -> None:
        assert task.claim_expires_at is not None and task.last_heartbeat_at is not None
        ttl = (task.claim_expires_at - task.last_heartbeat_at).total_seconds()
        super().__init__(ttl / BEATS_PER_LEASE, ttl, now)
        self.retry_s = ttl / RETRIES_PER_LEASE
        self.agent = agent
        self.job_id = task.id
        self.attempt = task.attempt

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.agent.name, self.agent.session)

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "attempt": self.attempt}


class ClientSession:
    """A session that holds jobs: its agent, its jobs, and when it last called."""

    __slots__ = ("agent", "called_at", "client", "held_jobs", "idle_until")

    def __init__(self, agent: Agent, now: float, client: Hashable = 0) -> None:
        self.agent = agent
        self.client = client
        self.called_at = now
        self.idle_until: float | None = None
        self.held_jobs: dict[int, HeldTask] = {}

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
        self.wake = threading.Event()
        """Set when there are leases to keep."""
        self._lock = threading.RLock()
        self.calls = KeyedThreadPool("holdfast-mcp-call", threads_max=CALLS_AT_ONCE_MAX, per_key_max=CALLS_AT_ONCE)
        self.on_orphan: Callable[[HeldTask], None] = lambda held: None
        """Called with a job that was claimed for a session that has ended."""
        self._sessions: dict[SessionKey, ClientSession] = {}
        self._ended_sessions: dict[str, None] = {}
        self._closed = False

    def agent(self, key: SessionKey, suggestions: Suggestions | None = None) -> Agent:
        """Return the agent of a session that is calling, and record the activity."""
        with self._lock:
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
            return entry.agent

    def attempt(self, key: SessionKey, job_id: int) -> int | None:
        """Return the attempt of the job that this session holds, as far as the server knows."""
        with self._lock:
            entry = self._sessions.get(key)
            held = None if entry is None else entry.held_jobs.get(job_id)
            return None if held is None else held.attempt

    def check_capacity(self, key: SessionKey, job_id: int | None, client: Hashable = 0) -> None:
        """Raise limit_exceeded if the session holds too many jobs, or the client has too many sessions.

        `job_id` is the job to be claimed. A session may always claim a job that it holds. A call without `job_id` is allowed,
        because it gets a job of its own session before any other.
        """
        with self._lock:
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
        with self._lock:
            now = self.monotonic()
            if self._closed or key.session in self._ended_sessions:
                self.on_orphan(HeldTask(agent, task, now))
                return
            entry = self._sessions.get(key)
            if entry is None:
                entry = self._sessions[key] = ClientSession(agent, now, client)
            entry.touch(now)
            entry.held_jobs[task.id] = HeldTask(agent, task, now)
            self.wake.set()

    def drop(self, key: SessionKey, job_id: int) -> None:
        """Forget a job that the session has ended or lost."""
        with self._lock:
            entry = self._sessions.get(key)
            if entry is not None:
                entry.held_jobs.pop(job_id, None)
                if not entry.held_jobs:
                    del self._sessions[key]

    def end_sessions(self, session: str | None = None) -> list[HeldTask]:
        """End a session, or all sessions. Return the jobs that were held for them."""
        with self._lock:
            if session is None:
                self._closed = True
            else:
                self._ended_sessions[session] = None
                if len(self._ended_sessions) > ENDED_SESSIONS_MAX:
                    del self._ended_sessions[next(iter(self._ended_sessions))]
            keys = [key for key in self._sessions if session is None or key.session == session]
            sessions = [self._sessions.pop(key) for key in keys]
        return [held for entry in sessions for held in entry.held_jobs.values() if not held.lost]

    def mark_idle(self, idle_s: float) -> list[SessionKey]:
        """Mark sessions that have not called for `idle_s` as idle and return them. Forget idle ones whose leases have ended."""
        with self._lock:
            now, idle = self.monotonic(), []
            for key, entry in list(self._sessions.items()):
                if entry.idle_until is None and now - entry.called_at >= idle_s:
                    entry.idle_until = now + max(held.ttl for held in entry.held_jobs.values())
                    idle.append(key)
                elif entry.idle_until is not None and now >= entry.idle_until:
                    del self._sessions[key]
            return idle

    @property
    def is_empty(self) -> bool:
        return not self._sessions

    def kept_alive(self) -> list[HeldTask]:
        """Return the jobs whose leases are renewed: those of clients that are not idle."""
        with self._lock:
            active = [entry for entry in self._sessions.values() if entry.idle_until is None]
            return [held for entry in active for held in entry.held_jobs.values() if not held.lost]

    def is_held(self, held: HeldTask) -> bool:
        """Return whether this is still the current record of the job."""
        with self._lock:
            entry = self._sessions.get(held.session)
            return entry is not None and entry.held_jobs.get(held.job_id) is held


log = logging.getLogger("holdfast.mcp")

BEATS_AT_ONCE = 16
"""A heartbeat that waits for a locked row takes up one of these."""
RELEASES_AT_ONCE = 16
SHUTDOWN_S = 5.0
"""How long releasing jobs may take at the end. The leases of jobs that are left then expire."""


class SessionLeases(LeaseKeeper[HeldTask]):
    """Renew the leases of all sessions, each until the job's client has not called for `idle_s`. After that they expire.

    An agent has no fence, so heartbeats cannot share a batch. Each is a call of its own, in a thread of a pool: one that waits
    for a lock delays no other. Leaving the context ends the heartbeats and releases the held jobs, unless `keep` is set. That
    takes at most SHUTDOWN_S; `is_stuck` is true if a call is still under way then.
    """

    log = log

    def __init__(self, sessions: ClientSessions, idle_s: float, *, keep: bool) -> None:
        super().__init__(sessions.monotonic)
        self._loop = ServiceLoop([self], name="mcp-heartbeats", wake=sessions.wake)
        self._closed = False
        self._sessions = sessions
        self._idle_s = idle_s
        self._keep = keep
        self._beat_pool = KeyedThreadPool("holdfast-mcp-beat", threads_max=BEATS_AT_ONCE, per_key_max=1)
        self._release_pool = KeyedThreadPool("holdfast-mcp-release", threads_max=RELEASES_AT_ONCE, per_key_max=1)
        self.is_stuck = False
        sessions.on_orphan = self._release_later

    def __enter__(self) -> Self:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._loop.close()
        self.end_session()
        until = self.monotonic() + SHUTDOWN_S
        # Calls come first: a call that is under way may still claim a job that has to be released.
        calls, beats, held = (
            pool.wait_for_idle(until - self.monotonic()) for pool in (self._sessions.calls, self._beat_pool, self._release_pool)
        )
        self.is_stuck = bool(calls or beats or held)
        if self.is_stuck:
            log.warning("the ledger does not answer: leases of held jobs will expire", extra={"jobs": held, "calls": calls})

    def end_session(self, session: str | None = None) -> None:
        """End a session, or all sessions, and release their jobs, so that others can claim them."""
        for held in self._sessions.end_sessions(session):
            self._release_later(held)

    def _release_later(self, held: HeldTask) -> None:
        if not self._keep:
            self._release_pool.submit(held.job_id, partial(_release, held))

    # Heartbeats

    def leases(self) -> list[HeldTask]:
        return self._sessions.kept_alive()

    def tick(self) -> None:
        for key in self._sessions.mark_idle(self._idle_s):
            log.info("session is idle: its leases will expire", extra={"agent": key.name, "session": key.session})
        super().tick()
        self.every_s = math.inf if self._sessions.is_empty else TICK_SECONDS

    def beat(self, due: Sequence[HeldTask]) -> Sequence[Beat | HoldfastError]:
        """Have the heartbeats sent, and return at once. One that is under way for a whole lease is reported."""
        for held in due:
            held.due = self.monotonic() + held.ttl
            if held.is_beating:
                log.warning("a heartbeat has been under way for longer than its lease", extra=held.log_fields)
            else:
                held.is_beating = True
                self._beat_pool.submit(held.job_id, partial(self._beat, held))
        return ()

    def _beat(self, held: HeldTask) -> None:
        if not self._closed and self._sessions.is_held(held):
            super().beat([held])

    def send(self, beats: Sequence[tuple[HeldTask, Fields | None]], left_s: float) -> Sequence[Beat | HoldfastError]:
        [(held, _)] = beats
        try:
            return [beat_of(held.agent.heartbeat(held.job_id, attempt=held.attempt))]
        finally:
            # Before the answer sets the time of the next heartbeat: that one would seem to be late else.
            held.is_beating = False

    def on_lost(self, lease: HeldTask) -> None:
        if self._sessions.is_held(lease):
            super().on_lost(lease)


def _release(held: HeldTask) -> None:
    try:
        held.agent.release(held.job_id, attempt=held.attempt)
    except HoldfastError as error:
        log.warning("could not hand a job back", extra={"job_id": held.job_id, "error": str(error)})
    else:
        log.info("handed back", extra=held.log_fields)
