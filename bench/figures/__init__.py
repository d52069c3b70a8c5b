"""The figures, by name, in the order of their measurement."""

from collections.abc import Callable
from typing import NamedTuple

from bench.figures import (
    bulk,
    cli,
    counting,
    dependents,
    drain,
    events,
    fleet,
    flow,
    follow,
    followers,
    groups,
    growth,
    heartbeats,
    history,
    horizon,
    http,
    idle,
    latency,
    memory,
    overview,
    recovery,
    resume,
    schedules,
    seal,
    signed,
    single,
    sweep,
    timeline,
    verify,
    volume,
)
from bench.places import Host
from bench.report import Heading, Row
from bench.sizes import Sizes


class Figure(NamedTuple):
    heading: Heading
    measure: Callable[[Host, Sizes], list[Row]]


FIGURES = {
    "drain": Figure(drain.HEADING, drain.measure),
    "bulk": Figure(bulk.HEADING, bulk.measure),
    "single": Figure(single.HEADING, single.measure),
    "history": Figure(history.HEADING, history.measure),
    "horizon": Figure(horizon.HEADING, horizon.measure),
    "heartbeats": Figure(heartbeats.HEADING, heartbeats.measure),
    "sweep": Figure(sweep.HEADING, sweep.measure),
    "events": Figure(events.HEADING, events.measure),
    "follow": Figure(follow.HEADING, follow.measure),
    "bytes": Figure(volume.HEADING, volume.measure),
    "signed": Figure(signed.HEADING, signed.measure),
    "memory": Figure(memory.HEADING, memory.measure),
    "growth": Figure(growth.HEADING, growth.measure),
    "fleet": Figure(fleet.HEADING, fleet.measure),
    "latency": Figure(latency.HEADING, latency.measure),
    "recovery": Figure(recovery.HEADING, recovery.measure),
    "idle": Figure(idle.HEADING, idle.measure),
    "schedules": Figure(schedules.HEADING, schedules.measure),
    "flow": Figure(flow.HEADING, flow.measure),
    "groups": Figure(groups.HEADING, groups.measure),
    "http": Figure(http.HEADING, http.measure),
    "followers": Figure(followers.HEADING, followers.measure),
    "seal": Figure(seal.HEADING, seal.measure),
    "verify": Figure(verify.HEADING, verify.measure),
    "dependents": Figure(dependents.HEADING, dependents.measure),
    "resume": Figure(resume.HEADING, resume.measure),
    "counting": Figure(counting.HEADING, counting.measure),
    "overview": Figure(overview.HEADING, overview.measure),
    "timeline": Figure(timeline.HEADING, timeline.measure),
    "cli": Figure(cli.HEADING, cli.measure),
}
