"""Dedupe keys: who has one, how it passes from one job to another, and what later calls with a key change."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.model import EventRecord, JobRecord, Micros
from holdfast.core.payloads import PostponedPayload, decode
from holdfast.core.windows import changed_payload, changes_payload
from holdfast.store.policies import SqlPolicies


class KeyHolder(NamedTuple):
    """The job that has a dedupe key."""

    id: int
    created_at: Micros
    is_free: bool | None
    """The job has ended, and its window is over: the key may be freed."""


class SqlWindows(SqlPolicies):
    def key_holder(self, queue: str, key: str) -> int | None:
        """Return the job that has this dedupe key in this queue. A key that is no longer kept is freed."""
        found = self.find_key(queue, key)
        return None if found is None else found.id

    def find_key(self, queue: str, key: str) -> KeyHolder | None:
        """Return the job that has this key. A key that is no longer kept is freed."""
        found = self.record(KeyHolder, "find_key", queue=queue, key=key, now_at=self.stamp())
        if found is None or not found.is_free:
            return found
        self.rows("free_key", queue=queue, key=key, now_at=self.stamp())
        return None

    def lock_key_holder(self, queue: str, key: str) -> int | None:
        """Lock the job that has this key. Return None if it has lost the key meanwhile."""
        return self.key_holder(queue, key)

    def take_key(self, job_id: int) -> None:
        """Take the dedupe key from a job that is locked."""
        self.rows("take_key", id=job_id)

    def has_key(self, job_id: int) -> bool:
        """Return whether the job still has its dedupe key."""
        return bool(self.value("has_key", id=job_id))

    def last_postponed(self, job_id: int) -> tuple[Micros, PostponedPayload] | None:
        """Return when a call has postponed the job last, and how."""
        for at, payload in self.rows("last_postponed", id=job_id):
            return at, decode(PostponedPayload, payload)
        return None

    def _save_call(self, job: JobRecord, events: Sequence[EventRecord]) -> None:
        """Save what a later call, or a move to another worker, has changed besides the columns of every save."""
        if not any(map(changes_payload, events)):
            return
        payload = changed_payload(self.value("payload_of", id=job.id), tuple(events))
        self.rows("set_payload", id=job.id, payload=payload, profile_id=self.profile_id(job))
