"""Workers take the jobs of a graph in its order, each once, with several workers."""

import random
import threading
from typing import Any

from holdfast import App, AsyncContext, Context, Job
from holdfast.testing import ManualClock, NoJitter, drain
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended

SIZE = 200


def graph(seed: int) -> list[dict[str, Any]]:
    """Items of a graph in random order."""
    chance = random.Random(seed)
    items = []
    for number in range(SIZE):
        on = {f"n{chance.randrange(max(0, number - 20), number)}" for _ in range(chance.randrange(4))} if number else set()
        items.append({"kind": "step", "args": {"number": number}, "ref": f"n{number}", "depends_on": sorted(on)})
    chance.shuffle(items)
    return items


def test_a_graph_is_drained_in_its_order(app: App, start: Starter) -> None:
    """When a handler runs, all dependencies of its job are recorded as done."""
    done: set[int] = set()
    early: list[tuple[int, set[int]]] = []
    lock = threading.Lock()

    @app.handler()
    def step(job: Context, number: int) -> None:
        with lock:
            early.extend([(job.job.id, missing)] if (missing := set(job.job.depends_on) - done) else [])
            done.add(job.job.id)

    items = graph(7)
    jobs = app.ledger.enqueue_many(items)
    for _ in range(3):
        start(threads=4)
    wait_until(lambda: app.ledger.counts().get("default") == {"succeeded": SIZE}, seconds=90, what="the end of the graph")
    assert early == []
    ends = {job.id: app.ledger.events(job.id) for job in jobs}
    for job in jobs:
        events = ends[job.id]
        expected = ["enqueued", *(["unblocked"] if job.depends_on else []), "claimed", "started", "succeeded"]
        assert [event.type.value for event in events] == expected
        assert all(ends[on][-1].pos < events[1].pos for on in job.depends_on)
        assert app.ledger.check(job.id) == []


def test_options_set_the_dependencies_of_a_job(app: App, start: Starter) -> None:
    order: list[str] = []

    @app.handler()
    def step(name: str) -> None:
        order.append(name)

    @app.handler()
    def parent(job: Context) -> int:
        last = job.options(depends_on=[job.job], on_dependency_failure="cancel").enqueue(step, name="child")
        order.append("parent")
        return last.id

    first = app.options(delay=0.1).enqueue(step, name="first")
    app.options(depends_on=[first]).enqueue(step, name="second")
    start()
    made = app.enqueue(parent)
    child = app.ledger.get(ended(app, made).result)
    assert (child.correlation_id, child.on_dependency_failure) == (made.correlation_id, "cancel")
    ended(app, child)
    wait_until(lambda: "second" in order, what="the second step")
    assert order.index("first") < order.index("second")
    assert order.index("parent") < order.index("child")


def test_an_async_handler_sets_the_dependencies_of_a_job(app: App, start: Starter) -> None:
    @app.handler()
    def step() -> str:
        return "done"

    @app.handler()
    async def parent(job: AsyncContext) -> int:
        first = await job.enqueue(step)
        return (await job.options(depends_on=[first]).enqueue(step)).id

    job = app.enqueue(parent)
    start()
    last: Job = app.ledger.get(ended(app, job).result)
    assert ended(app, last).result == "done"
    assert len(last.depends_on) == 1


def test_a_drain_does_not_advance_the_clock_for_a_job_with_a_failed_dependency(store_url: str) -> None:
    clock = ManualClock()
    app = App(store_url, clock=clock, entropy=NoJitter())

    @app.handler()
    def step() -> None:
        """The second job never runs."""

    first = app.enqueue(step)
    app.options(depends_on=[first]).enqueue(step)
    app.ledger.cancel(first.id)
    before = clock.now()
    assert drain(app, advance=True).counts == {}
    assert (clock.now(), app.ledger.until_ready()) == (before, None)
    app.close()
