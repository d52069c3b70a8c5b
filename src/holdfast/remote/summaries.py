"""The verbs of a remote ledger that sum up the ledger, and draw one job."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core import limits
from holdfast.ledger import validate
from holdfast.ledger.charts import JobTotals, LedgerHistory, Metric, Series, Span
from holdfast.ledger.overview import AgentSession, AttentionItem, KindRecord, Overview
from holdfast.ledger.public import Duration
from holdfast.ledger.verbs.letters import LetterGroups, group_fields
from holdfast.ledger.verbs.timeline import JobGraph, timeline_view
from holdfast.remote.base import RemoteVerbs, time_text
from holdfast.remote.items import path
from holdfast.watch.timeline.model import Timeline


class RemoteSummaryVerbs(RemoteVerbs):
    def overview(self) -> Overview:
        """Return everything that the first page of a dashboard shows. A server makes it once a second at most."""
        return self._get("/v1/overview", Overview)

    def kinds(self) -> list[KindRecord]:
        return self._field("/v1/kinds", "kinds", list[KindRecord])

    def attention(self, *, limit: int = limits.ATTENTION_MAX) -> list[AttentionItem]:
        limits.check_integer("limit", limit, 1, limits.ATTENTION_MAX)
        return self._field("/v1/attention", "attention", list[AttentionItem], limit=limit)

    def agents(self, *, limit: int = limits.PAGE_MAX) -> list[AgentSession]:
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._field("/v1/agents", "agents", list[AgentSession])[:limit]

    def job_totals(self) -> JobTotals:
        return self._get("/v1/totals", JobTotals)

    def history(
        self,
        *,
        metric: str = "throughput",
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> LedgerHistory:
        wanted = validate.choice("metric", Metric, metric)
        Series.chosen(queue, kind)
        span = Span.chosen(since, until, step)
        step_text = None if span.step_s is None else f"{span.step_s}s"
        times = {"from": time_text("since", since), "to": time_text("until", until), "step": step_text}
        return self._get("/v1/history", LedgerHistory, metric=wanted.value, queue=queue, kind=kind, **times)

    def dead_letter_groups(
        self,
        by: str | Sequence[str] = "cause",
        *,
        queue: str | None = None,
        kind: str | None = None,
        letters: bool = False,
    ) -> LetterGroups:
        query = {
            "letters": "true" if validate.switch("letters", letters) else None,
            "by": ",".join(group_fields(by)),
            "queue": None if queue is None else limits.check_name("queue", queue),
            "kind": None if kind is None else limits.check_name("kind", kind),
        }
        return self._get("/v1/dead-letters/groups", LetterGroups, **query)

    def timeline(
        self, job_id: int, *, since: datetime | None = None, until: datetime | None = None, width: int = 1_200
    ) -> Timeline:
        target = path("jobs", validate.job_id(job_id), "timeline")
        timeline_view(since, until, width)
        times = {"from": time_text("since", since), "to": time_text("until", until)}
        return self._get(target, Timeline, width=width, **times)

    def graph(self, job_id: int, *, depth: int = 3) -> JobGraph:
        target = path("jobs", validate.job_id(job_id), "graph")
        return self._get(target, JobGraph, depth=limits.check_integer("depth", depth, 1, limits.GRAPH_DEPTH_MAX))
