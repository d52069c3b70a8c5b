"""The cost of a large ledger for an agent that resumes: 100,000 tasks and a million events against 1,000 tasks."""

import time

import holdfast
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median, take_turns
from bench.sizes import Sizes
from holdfast.agent import Agent

HEADING = Heading("Resumes beside many tasks and events against few", ours="full", base="small")
TARGET = 1 / 3
QUEUES = 10


def measure(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as full, host.place() as small:
        full.fill("past", sizes.tasks * 5 // 2, finished=True)
        for place, tasks in ((full, sizes.tasks), (small, sizes.tasks // 100)):
            for number in range(QUEUES):
                place.fill(f"queue-{number}", max(1, tasks // QUEUES))
            place.settle()
        with holdfast.open(full.url) as crowded, holdfast.open(small.url) as empty:
            agents = Agent(crowded, "bench"), Agent(empty, "bench")
            for agent in agents:
                resumed(agent, sizes.resumes)
            many, few = take_turns(
                sizes.rounds, lambda _: resumed(agents[0], sizes.resumes), lambda _: resumed(agents[1], sizes.resumes)
            )
        written = full.events("started")
    return [Row(host.name, median(many), median(few), TARGET, written, {"full": many, "small": few})]


def resumed(agent: Agent, count: int) -> float:
    """Resumes a second, one of a new task and one of the same task each time. The completions are not counted."""
    seconds = 0.0
    for _ in range(count):
        began = time.perf_counter()
        task = agent.resume().task
        agent.resume()
        seconds += time.perf_counter() - began
        assert task is not None
        agent.complete(task.id)
    return 2 * count / seconds
