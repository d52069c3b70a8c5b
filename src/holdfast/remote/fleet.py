"""The verbs of a remote ledger that read queues, workers, policies, sinks, runs, keys, seals and tokens."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.doctor import Diagnosis, Severity
from holdfast.core.doctor.checks import check_clock
from holdfast.core.model import Policy
from holdfast.core.policy import SourcedField
from holdfast.errors import Unavailable
from holdfast.ledger import (
    DeclarationRecord,
    Inclusion,
    KeyRecord,
    QueueRecord,
    SinkState,
    TreeHead,
    WorkerRecord,
    validate,
)
from holdfast.ledger.export import Progress, Write
from holdfast.ledger.verbs.access import TokenRecord
from holdfast.ledger.verbs.explaining import skew_of
from holdfast.ledger.verbs.services import RunState
from holdfast.proof.export_format import EndLine, ExportLine
from holdfast.remote import answers as a
from holdfast.remote import items
from holdfast.remote.base import RemoteVerbs
from holdfast.remote.items import path
from holdfast.remote.refusals import needs_store


class RemoteFleetVerbs(RemoteVerbs):
    def counts(self) -> dict[str, dict[str, int]]:
        return self._field("/v1/counts", "counts", dict[str, dict[str, int]])

    def queues(self) -> list[QueueRecord]:
        return self._field("/v1/queues", "queues", list[QueueRecord])

    def paused(self) -> dict[str, datetime]:
        return {queue.name: queue.paused_at for queue in self.queues() if queue.paused_at is not None}

    def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> list[WorkerRecord]:
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        within = None
        if seen_within is not None:
            within = items.milliseconds(policies.duration_ms("seen_within", seen_within, 0, validate.DELAY_MS_MAX))
        return self._field("/v1/workers", "workers", list[WorkerRecord], seen_within=within, limit=limit)

    def until_ready(
        self,
        queues: Sequence[str] = ("default",),
        *,
        kinds: Sequence[str] | None = None,
        worker: str | None = None,
        labels: Sequence[str] = (),
    ) -> float | None:
        asked = {
            "queues": validate.names("queues", queues),
            "kinds": None if kinds is None else validate.names("kinds", kinds),
            "worker": None if worker is None else limits.check_name("worker", worker),
            "labels": validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX) or None,
        }
        found = self._get("/v1/until-ready", a.having("seconds", float | None), **asked)
        return cast(float | None, found.seconds)

    def wants_sweeping(self, holder: str) -> bool:
        limits.check_name("holder", holder)
        answer = a.having("wanted", bool)
        found = self._transport.call("POST", "/v1/duties/sweep/wanted", answer, body={"holder": holder}, changes=False)
        return cast(bool, found.wanted)

    def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self._field("/v1/policies", "policies", dict[str, dict[str, dict[str, Any]]])

    def declarations(self) -> dict[str, DeclarationRecord]:
        return self._field("/v1/policies", "declarations", dict[str, DeclarationRecord])

    def policy_sources(self, kind: str | None = None, *, tier: str | None = None) -> list[SourcedField]:
        query = {
            "kind": None if kind is None else limits.check_name("kind", kind),
            "tier": None if tier is None else limits.check_name("tier", tier),
        }
        return self._field("/v1/policy-sources", "fields", list[SourcedField], **query)

    def policy_of(self, job_id: int) -> Policy:
        return self._field(path("jobs", validate.job_id(job_id), "policy"), "policy", Policy)

    def sinks(self) -> list[SinkState]:
        return self._field("/v1/sinks", "sinks", list[SinkState])

    def runs(self, *, after: str = "", limit: int = 100) -> list[RunState]:
        validate.page_by_name(after, limit)
        return self._field("/v1/runs", "runs", list[RunState], after=after, limit=limit)

    def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> Diagnosis:
        found = self._get("/v1/doctor", Diagnosis)
        if clock is None:
            return found
        finding = check_clock(skew_of(self._store, validate.function("clock", clock)))
        well = found.well and finding.severity is not Severity.WARNING
        return msgspec.structs.replace(found, well=well, findings=[*found.findings, finding])

    # Keys and seals

    def keys(self) -> list[KeyRecord]:
        return self._field("/v1/keys", "keys", list[KeyRecord])

    def head(self) -> TreeHead | None:
        return cast(TreeHead | None, self._get("/v1/head", a.having("head", TreeHead | None)).head)

    def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> list[TreeHead]:
        validate.page(after, limit)
        return self._field("/v1/heads", "heads", list[TreeHead], after=after, limit=limit)

    def inclusion(self, job_id: int) -> Inclusion:
        return self._get(path("jobs", validate.job_id(job_id), "inclusion"), Inclusion)

    def export(self, write: Write, *, progress: Progress | None = None) -> EndLine:
        return self._save("/v1/export", validate.function("write", write))

    def prove(self, job_id: int, write: Write) -> EndLine:
        return self._save(path("jobs", validate.job_id(job_id), "proof"), validate.function("write", write))

    def _save(self, target: str, write: Write) -> EndLine:
        """Pass on the lines of a file. Its last line says how many there were."""
        line = b"{}"
        for line in self._transport.lines(target, {}, "application/x-ndjson"):
            write(line)
        try:
            end = msgspec.json.decode(line, type=ExportLine).end
        except msgspec.DecodeError:
            end = msgspec.UNSET
        if isinstance(end, msgspec.UnsetType):
            raise Unavailable("the server ended the file before its last line")
        return end

    def tokens(self, *, after: str = "", limit: int = limits.PAGE_MAX) -> list[TokenRecord]:
        validate.page_by_name(after, limit)
        return self._field("/v1/tokens", "tokens", list[TokenRecord], after=after, limit=limit)

    # What has to be near the database

    @property
    def outbox(self) -> Any:
        raise needs_store()

    history_writer = sealed_log = supervision = outbox
