"""A user's program with mistakes. Each line that says so has one, and type checkers find it there."""

import holdfast
import holdfast.services
import holdfast.testing
from holdfast import App, AsyncContext, Context

app = App("sqlite:///typed.db")


@app.handler()
def add(a: int, b: int = 1) -> int:
    return a + b


@app.handler(queue="crawl")
def fetch(job: Context, url: str) -> dict[str, int]:
    job.enqueue(add, a="one")  # wrong
    job.options(dely="5m").enqueue(add, a=1)  # wrong
    return {url: 1}


@app.handler()
async def send(job: AsyncContext, to: str) -> bool:
    await job.enqueue(add, c=1)  # wrong
    return bool(to)


@app.handler()
def tidy() -> None: ...


async def use_with_await() -> None:
    await app.aio.enqueue(add)  # wrong
    await app.aio.enqueue(add, a="one")  # wrong
    await app.aio.enqueue(fetch, uri="u")  # wrong
    await app.aio.options(prority=3).enqueue(add, a=1)  # wrong
    text: str = (await app.aio.enqueue(add, a=1)).result  # wrong
    assert text
    holdfast.aio.open("sqlite:///typed.db", creat=False)  # wrong
    async with holdfast.aio.open("sqlite:///typed.db") as ledger:
        await ledger.enqueue("add", prority=1)  # wrong
        assert ledger.enqueue("add").id  # wrong


def use() -> None:
    app.enqueue(add)  # wrong
    app.enqueue(add, a="one")  # wrong
    app.enqueue(add, a=1, c=2)  # wrong
    app.enqueue(add, 1, 2, 3)  # wrong
    app.enqueue(fetch, "u", "v")  # wrong
    app.enqueue(fetch, uri="u")  # wrong
    app.enqueue(fetch, url=7)  # wrong
    app.enqueue(send)  # wrong
    app.enqueue(7)  # wrong
    app.options(prority=3)  # wrong
    app.options(dedupe="often")  # wrong
    app.options(priority="high").enqueue(add, a=1)  # wrong
    app.worker(thread=4)  # wrong
    app.work(threads="many")  # wrong
    app.handler(queu="crawl")  # wrong
    app.handler(isolation="fork")  # wrong
    app.handler(policy={"attempts": 3})  # wrong
    app.handler(attempts_max="3")  # wrong
    holdfast.open(7)  # wrong
    holdfast.open("sqlite:///typed.db", creat=False)  # wrong
    text: str = app.enqueue(add, a=1).result  # wrong
    assert text
    app.ledger.result(app.enqueue(tidy))
    late: str = app.ledger.result(app.enqueue(add, a=1))  # wrong
    assert late
    with holdfast.open("sqlite:///typed.db") as ledger:
        ledger.wait("1")  # wrong
        ledger.enqueue("add", prority=1)  # wrong
        ledger.enqueue("add", on_dependency_failure="explode")  # wrong
        job = ledger.enqueue("add")
        ledger.complete(job.fence)  # wrong
        ledger.complete(ledger.get(job.id).fence)  # wrong
    assert holdfast.NoSuchName  # wrong
    assert holdfast.errors.NoSuchName  # wrong
    assert holdfast.services.NoSuchName  # wrong
    assert holdfast.testing.NoSuchName  # wrong
    for answer in ledger.complete_many([]):
        assert answer.status  # wrong
