"""The verbs of a remote ledger for groups of jobs."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import Actor, Role
from holdfast.ledger import GroupChange, GroupRecord, Job, validate
from holdfast.ledger.base import public_job
from holdfast.ledger.verbs.groups import GroupVerbs
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.base import RemoteVerbs
from holdfast.remote.items import path
from holdfast.remote.waiting import POLL_SECONDS, STEP_SECONDS
from holdfast.store.callers import stop_if_abandoned

GROUP_SETTINGS: dict[str, Callable[..., tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]] = {
    "group": lambda name, body: ("PUT", path("groups", name), None, items.group_fields(name, body)),
    "close_group": lambda name: ("POST", path("groups", name, "close"), None, {}),
}
"""How groups are made and closed: method, path, query and body."""


class RemoteGroupVerbs(RemoteVerbs, GroupVerbs):
    def cancel_group(
        self, name: str, *, reason: str = "requested", hard: bool = False, actor: str | Actor | None = None
    ) -> GroupChange:
        sent = {"reason": validate.reason(reason), "hard": validate.switch("hard", hard)}
        return self._change_group(name, "cancel", sent, validate.actor(actor, Role.CLIENT, self._actor))

    def replay_group(self, name: str, *, reason: str | None = None, actor: str | Actor | None = None) -> GroupChange:
        why = validate.reason_if_any(reason)
        sent = {} if why is None else {"reason": why}
        return self._change_group(name, "replay", sent, validate.actor(actor, Role.OPERATOR, self._actor))

    def _change_group(self, name: str, action: str, sent: dict[str, Any], who: Actor) -> GroupChange:
        return self._send_change("POST", path("groups", limits.check_name("name", name), action), GroupChange, who, body=sent)

    def get_group(self, name: str) -> GroupRecord:
        return self._field(path("groups", limits.check_name("name", name)), "group", GroupRecord)

    def groups(self, *, after: str = "", limit: int = limits.PAGE_MAX, unfinished: bool = False) -> list[GroupRecord]:
        validate.page_by_name(after, limit)
        wanted = "true" if validate.switch("unfinished", unfinished) else None
        return self._field("/v1/groups", "groups", list[GroupRecord], after=after or None, limit=limit, unfinished=wanted)

    def group_jobs(
        self, name: str, *, status: str | Sequence[str] | None = None, after: int = 0, limit: int = limits.PAGE_MAX
    ) -> list[Job]:
        validate.page(after, limit)
        found, _ = validate.statuses(status)
        query = {"status": None if found is None else ",".join(found), "after": after or None, "limit": limit}
        target = path("groups", limits.check_name("name", name), "jobs")
        jobs = self._field(target, "jobs", list[a.RemoteJob], **query)
        return [public_job(a.record_of(job)) for job in jobs]

    def wait_group(self, name: str, *, timeout: float | None = None) -> GroupRecord:
        if timeout is not None:
            timeout = policies.duration_ms("timeout", timeout, 0, policies.DAY_MS) / 1_000
        end = None if timeout is None else time.monotonic() + timeout
        pause = POLL_SECONDS
        while True:
            found = self.get_group(name)
            left = STEP_SECONDS if end is None else end - time.monotonic()
            if found.done or left <= 0:
                return found
            stop_if_abandoned()
            time.sleep(min(pause, left))
            pause = min(2 * pause, STEP_SECONDS)
