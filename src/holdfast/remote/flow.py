"""The verbs of a remote ledger for limits and for the settings of queues."""

from collections.abc import Callable
from typing import Any

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.flow import LimitBody, QueueSettings
from holdfast.core.model import Actor
from holdfast.ledger import FlowStatus, LimitKeyRecord, LimitRecord, QueueSettingsRecord, validate
from holdfast.ledger.verbs.flow import FlowVerbs, rate_text
from holdfast.remote import items
from holdfast.remote.base import RemoteVerbs
from holdfast.remote.items import path


def _limit(name: str, key: str | None, body: LimitBody) -> tuple[str, str, None, dict[str, Any]]:
    target = path("limits", name) if key is None else path("limits", name, "keys", key)
    sent = items.without_none(concurrent=body.concurrent, rate=rate_text(body), burst=body.burst, by=body.by)
    return "PUT", target, None, sent


def _queue(queue: str, settings: QueueSettings) -> tuple[str, str, None, dict[str, Any]]:
    sent = items.without_none(weights=settings.weights or None)
    return "PUT", path("queues", queue, "settings"), None, sent


FLOW_SETTINGS: dict[str, Callable[..., tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]] = {
    "set_limit": _limit,
    "set_queue": _queue,
}
"""How limits and queues are set: method, path, query and body."""


class RemoteFlowVerbs(RemoteVerbs, FlowVerbs):
    def remove_limit(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        self._send_change("DELETE", path("limits", limits.check_name("name", name)), type(None), actor, request_id)

    def limits(self) -> list[LimitRecord]:
        return self._field("/v1/limits", "limits", list[LimitRecord])

    def limit(self, name: str) -> LimitRecord:
        return self._field(path("limits", limits.check_name("name", name)), "limit", LimitRecord)

    def limit_keys(
        self, name: str, *, key: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[LimitKeyRecord]:
        validate.page_by_name("" if after is None else after, limit)
        target = path("limits", limits.check_name("name", name), "keys")
        key = None if key is None else limits.check_name("key", key)
        return self._field(target, "keys", list[LimitKeyRecord], key=key, after=after, limit=limit)

    def flow_status(self, *, max_age: float = 0) -> FlowStatus:
        age_ms = policies.duration_ms("max_age", max_age, 0, policies.DAY_MS)
        return self._field("/v1/flow", "status", FlowStatus, max_age=age_ms / 1_000)

    def queue_settings(self) -> list[QueueSettingsRecord]:
        return self._field("/v1/queue-settings", "queues", list[QueueSettingsRecord])
