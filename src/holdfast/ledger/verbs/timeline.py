"""The timeline of a job, and the graph of the jobs around it."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core import limits
from holdfast.core.model import Status
from holdfast.errors import NotFound, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.verbs.explaining import facts_of
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.watch.timeline.build import TimelineView
    from holdfast.watch.timeline.model import Timeline


class GraphNode(msgspec.Struct, frozen=True):
    """A job in a graph. Its level is 0 for the job itself, negative for what it waits for, positive for what waits for it."""

    job_id: int
    queue: str
    kind: str
    status: Status
    level: int


class GraphEdge(msgspec.Struct, frozen=True, rename={"on_id": "from", "job_id": "to"}):
    """`job_id` waits, or has waited, for `on_id`."""

    on_id: int
    job_id: int


class JobGraph(msgspec.Struct, frozen=True):
    """The jobs around a job, nearest first, 500 at most."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    """Those between the nodes."""
    cut: int
    """How many neighbours of the nodes are left out for lack of room. There may be more jobs behind them."""


class TimelineVerbs(LedgerBase):
    def timeline(
        self, job_id: int, *, since: datetime | None = None, until: datetime | None = None, width: int = 1_200
    ) -> "Timeline":
        """Return what a drawing of a job's history needs, bounded however long the history is.

        `since` and `until` choose a part of it. Up to 2,000 heartbeats are given one by one. More are counted by bins, at most
        `width`.
        """
        from holdfast.core.explain import explain
        from holdfast.watch.timeline.build import TimelineHistory, TimelineJob, build_timeline

        job_id, view = validate.job_id(job_id), timeline_view(since, until, width)

        def work(session: Session) -> "Timeline":
            job, now = session.load_one(job_id), session.now()
            events = session.timeline_events(job_id)
            policies = session.policies_of({event.policy_id for event in events if event.policy_id is not None})
            history = TimelineHistory(events, session.timeline_beats(job_id), policies)
            following = explain(job, facts_of(session, job, now, since=history.status_since()), now).next
            row = TimelineJob(job.id, job.rev, job.status, job.available_at, following)
            return build_timeline(row, history, view, now)

        return self._store.read(work)

    def graph(self, job_id: int, *, depth: int = 3) -> JobGraph:
        """Return the jobs that a job waits for and those that wait for it, over up to `depth` steps in each direction."""
        job_id = validate.job_id(job_id)
        limits.check_integer("depth", depth, 1, limits.GRAPH_DEPTH_MAX)
        return self._store.read(lambda session: _graph(session, job_id, depth))


def timeline_view(since: datetime | None, until: datetime | None, width: int) -> "TimelineView":
    """Return the part of a timeline that the caller wants."""
    from holdfast.watch.timeline.build import TimelineView

    start = 0 if since is None else validate.moment("since", since)
    end = limits.TIME_US_MAX if until is None else validate.moment("until", until)
    if start >= end:
        raise ValidationError("since must be before until", field="since")
    return TimelineView(start, end, limits.check_integer("width", width, 1, limits.TIMELINE_WIDTH_MAX))


def _graph(session: Session, job_id: int, depth: int) -> JobGraph:
    levels = {job_id: 0}
    edges: set[tuple[int, int]] = set()
    is_cut = False
    for level in range(1, depth + 1):
        for sign in (-1, 1):
            edge_of = [id_ for id_, found in levels.items() if found == sign * (level - 1)]
            read = session.dependency_edges if sign < 0 else session.dependent_edges
            found = read(edge_of, limits.GRAPH_EDGES_MAX) if edge_of else []
            is_cut = is_cut or len(found) == limits.GRAPH_EDGES_MAX
            for on_id, waiting in found:
                other = on_id if sign < 0 else waiting
                edges.add((on_id, waiting))
                if other not in levels:
                    if len(levels) < limits.GRAPH_NODES_MAX:
                        levels[other] = sign * level
                    else:
                        is_cut = True
    heads = {head.id: head for head in session.job_heads(sorted(levels))}
    if job_id not in heads:
        raise NotFound(f"there is no job {job_id}", job_id=job_id)
    nodes = [
        GraphNode(id_, heads[id_].queue, heads[id_].kind, Status(heads[id_].status), level)
        for id_, level in levels.items()
        if id_ in heads
    ]
    shown = [GraphEdge(on_id, waiting) for on_id, waiting in sorted(edges) if on_id in heads and waiting in heads]
    return JobGraph(nodes, shown, _left_out(session, levels, depth) if is_cut else 0)


def _left_out(session: Session, levels: dict[int, int], depth: int) -> int:
    waiting = [id_ for id_, level in levels.items() if -depth < level <= 0]
    awaited = [id_ for id_, level in levels.items() if 0 <= level < depth]
    return session.count_left_out(waiting, awaited, list(levels))
