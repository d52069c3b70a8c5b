"""The verbs of a remote ledger for schedules."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from holdfast.core import limits
from holdfast.core.model import Actor
from holdfast.ledger import Job, ScheduleRecord, validate
from holdfast.ledger.public import Duration
from holdfast.ledger.verbs.schedules import ScheduleVerbs, read_firings_query
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.base import RemoteVerbs
from holdfast.remote.items import path

SCHEDULE_SETTINGS: dict[str, Callable[..., tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]] = {
    "set_schedule": lambda name, body: ("PUT", path("schedules", name), None, items.schedule_fields(name, body)),
    "pause_schedule": lambda name: ("POST", path("schedules", name, "pause"), None, {}),
    "resume_schedule": lambda name: ("POST", path("schedules", name, "resume"), None, {}),
}
"""How schedules are changed: method, path, query and body."""


class RemoteScheduleVerbs(RemoteVerbs, ScheduleVerbs):
    def declare_schedules(
        self, kind: str, schedules: Mapping[str, Mapping[str, Any]], *, actor: str | Actor | None = None
    ) -> list[str]:
        read = self._read_schedules(limits.check_name("kind", kind), schedules)
        sent = {name: items.schedule_fields(name, body) for name, body in read.items()}
        target = path("schedule-declarations", limits.check_name("kind", kind))
        return self._changed("PUT", target, "taken", list[str], actor, body={"schedules": sent})

    def remove_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        self._send_change("DELETE", path("schedules", limits.check_name("name", name)), type(None), actor, request_id)

    def run_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> Job:
        target = path("schedules", limits.check_name("name", name), "run")
        found = self._send_change("POST", target, a.FoundAnswer, actor, request_id, body={})
        return Job(found.job.id, a.record_of(found.job), is_new=found.is_new)

    def schedules(self, *, after: str = "", limit: int = limits.PAGE_MAX) -> list[ScheduleRecord]:
        validate.page_by_name(after, limit)
        return self._field("/v1/schedules", "schedules", list[ScheduleRecord], after=after or None, limit=limit)

    def schedule(self, name: str) -> ScheduleRecord:
        return self._field(path("schedules", limits.check_name("name", name)), "schedule", ScheduleRecord)

    def next_firings(
        self,
        name: str | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        count: int = 10,
    ) -> list[datetime]:
        timing = read_firings_query(name, cron, every, tz, start, end, count)
        every_us = None if timing is None else timing["every_us"]
        query = {
            "name": name,
            "cron": cron,
            "every": items.microseconds(every_us),
            "tz": tz,
            "start": start,
            "end": end,
            "count": count,
        }
        return self._field("/v1/firings", "times", list[datetime], **query)
