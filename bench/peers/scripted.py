"""A contender whose worker is a program of this folder that understands four verbs.

`install` makes its tables, `fill` enqueues jobs that do nothing, `work` is a worker, and `send` enqueues one job at a
time on request: a `tell`, whose handler reports that it began, or a `hold`, which also runs until it is killed.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.peers.base import Absent, Setting
from bench.peers.npm import node
from bench.peers.process import Late, MessageLog, Process, Silent
from bench.peers.redis import Redis
from bench.peers.storage import Postgres, Sqlite, wait_until_empty, watch
from bench.rounds import Turn

PROGRAMS = Path(__file__).with_name("programs")
BOOT_SECONDS = 120.0
FILL_SECONDS = 600.0
SETTLE_SECONDS = 60.0
TELL_SECONDS = 60.0
PAUSE_SECONDS = (0.1, 0.3)
"""Pauses between lone jobs, all different, so that they are not in step with a worker that polls."""
IDLE_SECONDS = 1.0
"""The time from a worker's readiness until its setup is complete."""


@dataclass
class Scripted:
    name: str
    storage: Literal["postgres", "redis", "sqlite"]
    config: Literal["default", "tuned"]
    program: str
    """The module below bench.peers.programs, or the file there that Node runs."""
    unfinished: str
    """The statement that counts the jobs that are not durably finished; on Redis, commands whose counts are added up."""
    file: str = "jobs.db"
    """Where its SQLite tables lie, below its home."""
    counts: bool = True
    """Whether the worker can report that the last handler has run. A worker with handlers in several processes cannot."""
    own_python: bool = False
    """Run with the interpreter of the benchmark, which has Holdfast installed."""
    poll_seconds: float = 0.0
    """The poll interval of an idle worker: lone jobs come at any time within it."""

    def prepare(self, setting: Setting) -> None:
        try:
            self._run(setting, "install", 0, BOOT_SECONDS)
        except (Silent, OSError) as error:
            said = [note.splitlines()[-1] for note in getattr(error, "__notes__", [])]
            raise Absent("; ".join([str(error), *said])) from error

    def drain(self, setting: Setting, jobs: int) -> Turn:
        self._run(setting, "fill", jobs, FILL_SECONDS)
        store = self._store(setting)
        try:
            found = store.left()
            assert found == jobs, f"{found} jobs were enqueued, not {jobs}"
            store.settle()
            messages = MessageLog()
            with self._start(setting, "work", jobs, messages) as worker:
                began_at = messages.wait("ready", BOOT_SECONDS).at
                meter = store.meter(worker.id)
                if self.counts and messages.arrives("ran", drain_seconds(jobs)):
                    left, at = 0, wait_until_empty(store.left, SETTLE_SECONDS)
                else:
                    left, at = watch(store.left, began_at + drain_seconds(jobs))
                return Turn((jobs - left) / (at - began_at), meter.spent(jobs - left))
        finally:
            store.close()

    def latency(self, setting: Setting, jobs: int) -> list[float] | None:
        taken, messages, sent = [], MessageLog(), MessageLog()
        with self._start(setting, "work", 0, messages), self._start(setting, "send", 0, sent) as sender:
            messages.wait("ready", BOOT_SECONDS)
            sent.wait("ready", BOOT_SECONDS)
            time.sleep(IDLE_SECONDS)
            for _ in range(jobs):
                sender.tell("tell")
                sent_at = sent.wait("sent", TELL_SECONDS).at
                taken.append((messages.wait("began", TELL_SECONDS).at - sent_at) * 1_000)
                time.sleep(random.uniform(*PAUSE_SECONDS) + random.uniform(0, self.poll_seconds))
        return taken

    def recovery(self, setting: Setting, seconds_max: float) -> float | None:
        messages, sent = MessageLog(), MessageLog()
        with (
            self._start(setting, "work", 0, messages) as one,
            self._start(setting, "work", 0, messages) as other,
            self._start(setting, "send", 0, sent) as sender,
        ):
            for _ in (one, other):
                messages.wait("ready", BOOT_SECONDS)
            sent.wait("ready", BOOT_SECONDS)
            time.sleep(IDLE_SECONDS)
            sender.tell("hold")
            holder = messages.wait("began", TELL_SECONDS).speaker
            time.sleep(IDLE_SECONDS)
            killed_at = time.time()
            (one if one.id == holder else other).kill()
            try:
                return messages.wait("began", seconds_max, except_from=holder).at - killed_at
            except Late:
                return None

    def _place(self, setting: Setting) -> str:
        if self.storage == "redis":
            if setting.redis_url is None:
                raise Absent("no Redis server")
            return setting.redis_url
        return setting.postgres_url if self.storage == "postgres" else str(setting.home / self.file)

    def _store(self, setting: Setting) -> Postgres | Sqlite | Redis:
        place = self._place(setting)
        if self.storage == "redis":
            return Redis(place, self.unfinished)
        if self.storage == "postgres":
            return Postgres(place, self.unfinished)
        return Sqlite(Path(place), self.unfinished)

    def _start(self, setting: Setting, verb: str, jobs: int, messages: MessageLog) -> Process:
        said = [verb, self._place(setting), self.config, str(jobs)]
        if self.program.endswith(".mjs"):
            environment = {"BENCH_NODE_MODULES": str(setting.node_modules), "NODE_ENV": "production"}
            return Process(
                [str(node(setting.node_modules)), str(PROGRAMS / self.program), *said], setting.home, messages, environment
            )
        python = sys.executable if self.own_python else str(setting.python)
        return Process([python, "-m", f"bench.peers.programs.{self.program}", *said], setting.home, messages)

    def _run(self, setting: Setting, verb: str, jobs: int, seconds: float) -> None:
        with self._start(setting, verb, jobs, MessageLog()) as process:
            process.finish(seconds)


def drain_seconds(jobs: int) -> float:
    """The time limit of a drain: 30 s for 20,000 jobs, never below 5 s. The rate then counts the jobs finished so far."""
    return max(5.0, jobs / 667)


def both(make: Callable[[Literal["default", "tuned"]], Scripted]) -> list[Scripted]:
    """A contender with default settings, and tuned by its own documentation."""
    return [make("default"), make("tuned")]
