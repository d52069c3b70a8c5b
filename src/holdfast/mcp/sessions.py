"""Client sessions: the jobs that each holds, and the heartbeats for them."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
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
    """Whose call it is: an agent's name and session, as the ledger knows them."""

    name: str
    session: str


class HeldJob:
    """A job that is held for a client. `attempt` fences off whoever speaks for an attempt that is over."""

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
    __slots__ = ("agent", "called_at", "client", "held_jobs", "idle_until")

    def __init__(self, agent: Agent, now: float, client: int = 0) -> None:
        self.agent = agent
        self.client = client
        self.called_at = now
        self.idle_until: float | None = None
        self.held_jobs: dict[int, HeldJob] = {}

    def touch(self, now: float) -> None:
        self.called_at = now
        self.idle_until = None


class TooManyHeldJobs(LimitExceeded):
    """A session holds as many tasks as it may."""

    action = "Complete, fail or release one of yours first: call list_jobs with mine true."


class TooManySessions(LimitExceeded):
    """The server holds tasks for as many sessions of this client as it may."""

    action = "Go on with what your session holds, or try again when another has ended."


CALLS_AT_ONCE = 4
"""Of one session; further ones wait for those."""
CALLS_AT_ONCE_MAX = 256
"""Of all."""
ENDED_SESSIONS_MAX = 10_000
"""Sessions that are remembered to be over, for what still comes in for them."""


class DueHeartbeat(NamedTuple):
    """A job that wants a beat; or, where one has been under way for as long as its lease, somebody's attention."""

    key: SessionKey
    agent: Agent
    held: HeldJob
    is_late: bool


class ClientSessions:
    """All sessions that held jobs. Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float], clients: int = 1) -> None:
        self.ledger = ledger
        self.clients = clients
        """How many share the server, each with a token of its own."""
        self.monotonic = monotonic
        self.changed = threading.Condition()
        self.calls = KeyedThreadPool("holdfast-mcp-call", threads_max=CALLS_AT_ONCE_MAX, per_key_max=CALLS_AT_ONCE)
        self.on_orphan: Callable[[Agent, HeldJob], None] = lambda agent, held: None
        """Told of a job that came in for a session that is over."""
        self._sessions: dict[SessionKey, ClientSession] = {}
        self._ended_sessions: dict[str, None] = {}
        self._closed = False

    def agent(self, key: SessionKey, suggestions: Suggestions | None = None) -> Agent:
        """The agent at this key, which is calling."""
        with self.changed:
            entry = self._sessions.get(key)
            if entry is None:
                return Agent(
                    self.ledger, key.name, session=key.session, suggestions=suggestions, known_attempt=partial(self.attempt, key)
                )
            entry.touch(self.monotonic())
            self.changed.notify_all()
            return entry.agent

    def touch(self, key: SessionKey) -> None:
        """It has asked for something, whatever it was: so it is there."""
        with self.changed:
            if key in self._sessions:
                self.agent(key)

    def attempt(self, key: SessionKey, job_id: int) -> int | None:
        """The attempt that this session holds, or held when it last heard of the job."""
        with self.changed:
            entry = self._sessions.get(key)
            held = None if entry is None else entry.held_jobs.get(job_id)
            return None if held is None else held.attempt

    def check_capacity(self, key: SessionKey, job_id: int | None, client: int = 0) -> None:
        """Raises limit_exceeded where this session, or the server, holds as much as it may. `job_id` is what it asks for: with
        what it has it may go on, and so may who asks for none, who is given one of its own before any other."""
        with self.changed:
            entry = self._sessions.get(key)
            if entry is None or entry.idle_until is not None:
                self._check_sessions(client)
            elif job_id is not None and job_id not in entry.held_jobs:
                most = limits.OWN_TASKS_MAX
                if sum(not held.lost for held in entry.held_jobs.values()) >= most:
                    raise TooManyHeldJobs(f"a session holds at most {most} tasks at once", field="tasks", limit=most)

    def _check_sessions(self, client: int) -> None:
        most = max(1, limits.MCP_SESSIONS_MAX // self.clients)
        if sum(entry.idle_until is None and entry.client == client for entry in self._sessions.values()) >= most:
            raise TooManySessions(f"tasks are held for at most {most} sessions at once", field="sessions", limit=most)

    def track(self, agent: Agent, task: Task, client: int = 0) -> None:
        """What the ledger said of a job: from here on it is held for this session, or it is not any more.

        What was said of an attempt before the one that is held is old. What comes for a session that has ended meanwhile is
        nobody's, and is handed back.
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
        """The session has ended the job, or has been told that it lost it."""
        with self.changed:
            entry = self._sessions.get(key)
            if entry is not None:
                entry.held_jobs.pop(job_id, None)
                if not entry.held_jobs:
                    del self._sessions[key]

    def end_sessions(self, session: str | None = None) -> Iterator[tuple[Agent, HeldJob]]:
        """What has been held for a session that is over, or for all of them; it is not any more."""
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
        """Sessions that have not called for so long, from now on asleep. For the keeper, under the lock."""
        now, found = self.monotonic(), []
        for key, entry in list(self._sessions.items()):
            if entry.idle_until is None and now - entry.called_at >= idle_s:
                entry.idle_until = now + max(held.lease_s for held in entry.held_jobs.values())
                found.append(key)
            elif entry.idle_until is not None and now >= entry.idle_until:
                del self._sessions[key]
        return found

    def take_due(self) -> list[DueHeartbeat]:
        """Whose beat it is time for, from now on under way. For the keeper, under the lock."""
        now, found = self.monotonic(), []
        for key, entry, held in self._kept_alive():
            if held.due_at <= now:
                found.append(DueHeartbeat(key, entry.agent, held, held.is_beating))
                held.due_at = math.inf if held.is_beating else now + held.lease_s
                held.is_beating = True
        return found

    def _kept_alive(self) -> Iterator[tuple[SessionKey, ClientSession, HeldJob]]:
        for key, entry in self._sessions.items():
            if entry.idle_until is None:
                yield from ((key, entry, held) for held in entry.held_jobs.values() if not held.lost)

    def next_at(self, idle_s: float) -> float | None:
        """When there is something to do for the keeper. Under the lock."""
        ends = [entry.called_at + idle_s if entry.idle_until is None else entry.idle_until for entry in self._sessions.values()]
        return min([*ends, *(held.due_at for _, _, held in self._kept_alive())], default=None)

    def is_held(self, key: SessionKey, held: HeldJob) -> bool:
        """Whether this is still what is known of the job. Under the lock."""
        entry = self._sessions.get(key)
        return entry is not None and entry.held_jobs.get(held.job_id) is held


log = logging.getLogger("holdfast.mcp")

RETRIES_PER_LEASE = 10
"""Of a lease: how long to wait after the ledger was out of reach."""
BEATS_AT_ONCE = 16
"""One that is held up, by a row that somebody has locked, takes up one of them."""
RELEASES_AT_ONCE = 16
SHUTDOWN_S = 5.0
"""How long handing back may take at the end; what is left then is left to its leases."""


class HeartbeatThread:
    """A thread that sees to a beat at a third of each lease, until the job's client has not called for `idle_s`.

    After that the leases are left to end by themselves. Leaving the block ends the beats, and hands back what is held unless
    `keep` is set. That takes END_S at most; whether something is under way even then, `is_stuck` tells.
    """

    def __init__(self, sessions: ClientSessions, idle_s: float, *, keep: bool) -> None:
        self._sessions = sessions
        self._idle_s = idle_s
        self._keep = keep
        self._closed = False
        self._beat_pool = KeyedThreadPool("holdfast-mcp-beat", threads_max=BEATS_AT_ONCE, per_key_max=1)
        self._release_pool = KeyedThreadPool("holdfast-mcp-farewell", threads_max=RELEASES_AT_ONCE, per_key_max=1)
        self._thread = threading.Thread(target=self._run, name="holdfast-mcp-keeper", daemon=True)
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
        # A call that is under way may still bring in a job to hand back: so calls come first.
        calls, beats, held = (
            pool.wait_for_idle(until - self._sessions.monotonic())
            for pool in (self._sessions.calls, self._beat_pool, self._release_pool)
        )
        self.is_stuck = bool(calls or beats or held)
        if self.is_stuck:
            log.warning("the ledger does not answer: what is held is left to its leases", extra={"jobs": held, "calls": calls})

    def end_session(self, session: str | None = None) -> None:
        """A session, or every one, is over in order: others may have its jobs as soon as they are handed back."""
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
                log.info("idle: its leases are left to end", extra={"agent": key.name, "session": key.session})
            for one in due:
                if one.is_late:
                    said = {"job_id": one.held.job_id, "attempt": one.held.attempt}
                    log.warning("a beat has been under way for longer than its lease", extra=said)
                else:
                    self._beat_pool.submit(one.held.job_id, partial(self._beat, one))

    def _beat(self, due: DueHeartbeat) -> None:
        key, agent, held, _ = due
        with self._sessions.changed:
            if self._closed or not self._sessions.is_held(key, held):
                return
            sent = self._sessions.monotonic()
        lost, said, part = False, "", BEATS_PER_LEASE
        try:
            agent.heartbeat(held.job_id, attempt=held.attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            lost, said, part = isinstance(error, HoldfastError) and not error.retryable, str(error), RETRIES_PER_LEASE
        with self._sessions.changed:
            held.lost, held.is_beating = lost, False
            held.due_at = sent + held.lease_s / part
            ended = not self._sessions.is_held(key, held)
            self._sessions.changed.notify_all()
        if said and not ended:
            extra = {"job_id": held.job_id, "attempt": held.attempt, "error": said}
            log.warning("the job is lost" if lost else "a beat failed", extra=extra)


def _release(agent: Agent, held: HeldJob) -> None:
    try:
        agent.release(held.job_id, attempt=held.attempt)
    except HoldfastError as error:
        log.warning("could not hand a job back", extra={"job_id": held.job_id, "error": str(error)})
    else:
        log.info("handed back", extra={"job_id": held.job_id, "attempt": held.attempt})
