"""Verbs of flow control: limits that jobs draw on, and how a queue serves its partitions and its old jobs."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.doctor.model import COUNT_MAX
from holdfast.core.flow import LimitBody, LimitKey, QueueSettings, read_ratio
from holdfast.core.model import Actor, Role
from holdfast.core.text import format_setting_ms
from holdfast.errors import LimitExceeded, NotFound, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.limit_keys import unknown_limit
from holdfast.ledger.public import public_record, to_datetime
from holdfast.ledger.verbs.explaining import seen
from holdfast.store.flow import decode_settings
from holdfast.store.limits import LimitKeyRow, LimitRow, WaitingJobs, decode_limit, effective_limit
from holdfast.store.session import Session


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A limit. Fields that are None do not limit."""

    name: str
    concurrent: int | None
    """Units that may be held at once, for each key."""
    rate: str | None
    """Units that may start in a time, on average, for each key: "600/60s"."""
    burst: int | None
    """Units that may start at once after a pause."""
    by: str | None
    """The argument that is the key. Without one, all jobs share the limit."""
    updated_at: datetime
    updated_by: str


class LimitKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a limit, and what is in use of it now. The key is "" if the limit has no keys."""

    key: str
    concurrent: int | None
    rate: str | None
    burst: int | None
    is_own: bool
    """Whether the numbers were set for this key alone."""
    used: int
    """Units that are held now."""
    tokens: float | None
    """Units that the rate allows to start now. None without a rate."""
    waiting: int
    """Jobs that could be claimed, and wait for this key. 1,000 at most."""
    waiting_since: datetime | None
    """Since when the first of them could have been claimed."""


class QueueSettingsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue serves its partitions."""

    queue: str
    weights: dict[str, int]


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and what is in use of it over all of its keys."""

    name: str
    concurrent: int | None
    """Units that may be held at once, for each key."""
    rate: str | None
    by: str | None
    used: int
    """Units that are held now."""
    keys: int
    """Keys that are in use. A limit without keys counts as one."""
    waiting: int
    """Jobs that could be claimed, and wait for this limit. 1,000 at most."""
    waiting_since: datetime | None
    """Since when the first of them could have been claimed."""


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is in use of every limit, and the jobs that no running worker may have."""

    limits: list[LimitUsage]
    unroutable: dict[str, int]
    """By queue: jobs whose labels no running worker has, or whose worker is not running. At most 1,000 of each route."""


class FlowVerbs(LedgerBase):
    _flow_read: tuple[float, FlowStatus] | None = None
    """When the status was last read, and the status."""

    def set_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        by: str | None = None,
        key: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> LimitRecord:
        """Make a limit, or replace the one of this name. Jobs draw on it with the option `limits` of `enqueue`.

        At most `concurrent` units are held at once, over all workers; with 0, no job starts. `rate`, such as "600/1m", is how
        many units may start, on average; `burst` is how many may start at once after a pause. In any time t, at most
        burst + rate * t start. Without `burst`, it is what the rate gives in a second. With `by`, such as "args.tenant", each
        value of that argument has the limit for itself. With `key`, the numbers are for that value alone, and replace those of
        the limit.

        The numbers hold from the next claim on. Jobs that are held already go on, also if they are more than the new number.
        """
        name = limits.check_name("name", name)
        body = _limit_body(concurrent, rate, burst, by)
        who = validate.actor(actor, Role.OPERATOR, self._actor)
        if key is not None:
            key = limits.check_name("key", key)
            if by is not None:
                raise ValidationError("by belongs to the limit, not to one of its keys", field="by")
        elif body.concurrent is None and body.rate is None:
            raise ValidationError("a limit has concurrent, rate or both", field="concurrent")

        def work(session: Session) -> None:
            known = session.limit_body(name)
            if key is not None:
                if known is None:
                    raise unknown_limit(name)
                if known.by is None:
                    action = f"Set it with the argument that is the key: holdfast limit set {name} --by args.NAME."
                    raise NotFound(f"limit {name} has no keys: it was set without by", action=action, name=name)
                session.put_limit_key(name, key, None if body == _NO_LIMIT else body)
                return
            if known is None and session.count_limits() >= limits.LIMITS_MAX:
                raise LimitExceeded(f"a ledger has at most {limits.LIMITS_MAX} limits", field="name", limit=limits.LIMITS_MAX)
            session.put_limit(name, body, who.name)

        self._set("set_limit", (name, key, body), request_id, who, work)
        self._forget_limits()
        self._store.wake([name])
        return self.limit(name)

    def _forget_limits(self) -> None:
        if self._limit_keys is not None:
            self._limit_keys.forget()

    def remove_limit(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Remove a limit. Jobs that draw on it go on without it."""
        name = limits.check_name("name", name)

        def work(session: Session) -> None:
            if not session.drop_limit(name):
                raise unknown_limit(name)

        self._set("remove_limit", (name,), request_id, actor, work)
        self._forget_limits()
        self._store.wake([name])

    def limits(self) -> list[LimitRecord]:
        """Return all limits, by name."""
        return [_limit_record(row) for row in self._store.read(lambda session: session.limit_rows("", limits.LIMITS_MAX))]

    def limit(self, name: str) -> LimitRecord:
        """Return one limit."""
        name = limits.check_name("name", name)
        found = next((one for one in self.limits() if one.name == name), None)
        if found is None:
            raise unknown_limit(name)
        return found

    def limit_keys(
        self, name: str, *, key: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[LimitKeyRecord]:
        """Return the keys of a limit that jobs have drawn on, or that have their own numbers, by key.

        Each has what is in use of it, and how many jobs wait for it. With `key`, return that key only, if it is there.
        """
        name = limits.check_name("name", name)
        key = None if key is None else limits.check_name("key", key)
        validate.page_by_name("" if after is None else after, limit)

        def work(session: Session) -> list[LimitKeyRecord]:
            body = session.limit_body(name)
            if body is None:
                raise unknown_limit(name)
            if key is None:
                rows = session.limit_keys(name, after, limit)
            else:
                rows = [row for row in (session.limit_key(name, key),) if row is not None]
            used, waiting = session.count_used([row.id for row in rows]), session.waiting_jobs([row.id for row in rows])
            return [_key_record(row, body, used[row.id], waiting.get(row.id, _NONE_WAIT), session.now()) for row in rows]

        return self._store.read(work)

    def flow_status(self, *, max_age: float = 0) -> FlowStatus:
        """Return what is in use of every limit, how many jobs wait for it, and how many jobs no running worker may have.

        The answer may be up to `max_age` seconds old.
        """
        age_ms, asked_at, last = policies.duration_ms("max_age", max_age, 0, policies.DAY_MS), self._monotonic(), self._flow_read
        if last is None or (asked_at - last[0]) * 1_000 >= age_ms:
            last = self._flow_read = (asked_at, self._store.read(_status_of))
        return last[1]

    def set_queue(
        self,
        queue: str,
        *,
        weights: Mapping[str, int] | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> QueueSettingsRecord:
        """Set how a queue serves its partitions. What is not given is unset.

        `weights` are by partition: one with the weight 3 gets three times the jobs of one without a weight.
        """
        queue = limits.check_name("queue", queue)
        settings = QueueSettings(weights=_weights(weights))
        self._set("set_queue", (queue, settings), request_id, actor, lambda session: session.set_queue(queue, settings))
        self._store.wake([queue])
        return QueueSettingsRecord(queue=queue, weights=settings.weights)

    def queue_settings(self) -> list[QueueSettingsRecord]:
        """Return the settings of all queues that have any, by queue."""
        rows = self._store.read(lambda session: session.queue_rows())
        return [QueueSettingsRecord(queue=row.queue, weights=decode_settings(row.settings).weights) for row in rows]


def _status_of(session: Session) -> FlowStatus:
    from holdfast.core.doctor.checks import live_workers
    from holdfast.core.doctor.flow import find_unroutable

    rows = session.limit_rows("", limits.LIMITS_MAX)
    usage = session.limit_usage() if rows else {}
    routed = session.routed_jobs(COUNT_MAX)
    running = live_workers(seen(session.workers(None, limits.PAGE_MAX)), session.now()) if routed else []
    unroutable: Counter[str] = Counter()
    for one in find_unroutable(routed, running):
        unroutable[one.found.queue] += one.found.jobs
    waiting = session.waiting_by_limit() if rows else {}
    found = [_usage(row, *usage.get(row.name, (0, 0)), waiting.get(row.name, _NONE_WAIT)) for row in rows]
    return FlowStatus(limits=found, unroutable=dict(unroutable))


def _usage(row: LimitRow, used: int, keys: int, waiting: WaitingJobs) -> LimitUsage:
    body = decode_limit(row.body)
    numbers: dict[str, Any] = {"concurrent": body.concurrent, "rate": rate_text(body), "by": body.by}
    return LimitUsage(name=row.name, used=used, keys=keys, **numbers, **_waiting(waiting))


def _waiting(found: WaitingJobs) -> dict[str, Any]:
    return {"waiting": found.jobs, "waiting_since": to_datetime(found.since) if found.jobs else None}


_NO_LIMIT = LimitBody()
_NONE_WAIT = WaitingJobs(0, 0)


def _limit_body(concurrent: Any, rate: Any, burst: Any, by: Any) -> LimitBody:
    if concurrent is not None:
        concurrent = limits.check_integer("concurrent", concurrent, 0, limits.LIMIT_COUNT_MAX)
    units, per_us = (
        (None, None) if rate is None else read_ratio("rate", rate, "600/1m", limits.LIMIT_RATE_MS_MIN, limits.LIMIT_RATE_MS_MAX)
    )
    if burst is not None:
        if rate is None:
            raise ValidationError("burst belongs to a rate", field="burst")
        burst = limits.check_integer("burst", burst, 1, limits.LIMIT_COUNT_MAX)
    return LimitBody(concurrent, units, per_us, burst, None if by is None else _path(by))


def _path(given: Any) -> str:
    path = limits.check_name("by", given)
    root, *names = path.split(".")
    if root != "args" or not names or not all(names) or len(names) > limits.LIMIT_PATH_PARTS_MAX:
        raise ValidationError('by must be the path of an argument, such as "args.tenant"', field="by")
    return path


def _weights(given: Any) -> dict[str, int]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValidationError("weights must be a mapping of partitions to numbers", field="weights")
    limits.check_count("weights", len(given), limits.PARTITION_WEIGHTS_MAX)
    return {
        limits.check_name("weights", partition): limits.check_integer(
            f"the weight of {partition}", weight, 1, limits.PARTITION_WEIGHT_MAX, "weights"
        )
        for partition, weight in given.items()
    }


def rate_text(body: LimitBody) -> str | None:
    """Return a rate as a text that `set_limit` takes."""
    if body.rate is None or body.per_us is None:
        return None
    return f"{body.rate}/{format_setting_ms(body.per_us // 1_000)}"


def _limit_record(row: LimitRow) -> LimitRecord:
    body = decode_limit(row.body)
    return public_record(LimitRecord, row, by=body.by, **_numbers(body))


def _numbers(body: LimitBody) -> dict[str, Any]:
    burst = None if body.rate is None else body.tokens_max
    return {"concurrent": body.concurrent, "rate": rate_text(body), "burst": burst}


def _key_record(row: LimitKeyRow, shared: LimitBody, used: int, waiting: WaitingJobs, now: int) -> LimitKeyRecord:
    body = effective_limit(row.body, msgspec.json.encode(shared).decode()) or shared
    state = LimitKey(row.id, "", row.key, body, used, row.tokens, row.filled_at)
    state.refill(now)
    tokens = None if body.rate is None else round(state.tokens, 3)
    held: dict[str, Any] = {"used": used, "tokens": tokens, **_waiting(waiting)}
    return LimitKeyRecord(key=row.key, is_own=row.body is not None, **_numbers(body), **held)


def find_settings(ledger: FlowVerbs, queue: str) -> QueueSettingsRecord:
    """Return the settings of one queue, which may have none."""
    queue = limits.check_name("queue", queue)
    return next((one for one in ledger.queue_settings() if one.queue == queue), QueueSettingsRecord(queue=queue, weights={}))
