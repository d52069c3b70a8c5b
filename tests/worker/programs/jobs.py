"""An app with handlers that behave badly. Run as a program, with a name and settings, it is a worker of the app.

A setting `hook` is the url of a receiver and the name of a sink that gets all events.
"""

import ctypes
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import App, AsyncContext, Context, PermanentError, PolicyFields, TransientError
from holdfast.services import WebhookSink
from tests.support.receiver import SECRET

app = App(os.environ["HOLDFAST_URL"])

TIGHT: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "backoff_base": 0}


def note(path: str, text: str) -> None:
    """Write one whole line, also if other processes write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


@app.handler(policy=TIGHT)
def hold(job: Context, log: str, go: str) -> dict[str, Any]:
    """The first attempt waits until the test allows the end, or for ever."""
    note(log, f"{os.getpid()} {job.job.attempt}")
    if job.job.attempt == 1:
        wait_for(go)
    return {"pid": os.getpid(), "attempt": job.job.attempt}


@app.handler()
def let_go(go: str) -> int:
    wait_for(go)
    return os.getpid()


@app.handler()
def count(log: str, n: int) -> int:
    note(log, f"{os.getpid()} {n}")
    time.sleep(0.001)
    return n


@app.handler(policy=TIGHT)
def in_thread(job: Context, seconds: float) -> int:
    return block(job, seconds)


@app.handler(policy=TIGHT, isolation="process")
def in_process(job: Context, seconds: float) -> int:
    return block(job, seconds)


def block(job: Context, seconds: float) -> int:
    """Block the interpreter in a C call that keeps the GIL. Later attempts are quick."""
    if job.job.attempt == 1:
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return job.job.attempt


@app.handler(policy=TIGHT, attempts_max=3)
def poison(log: str) -> None:
    note(log, str(os.getpid()))
    os._exit(9)


@app.handler(policy=TIGHT, attempts_max=3, isolation="process")
def contained_poison(log: str) -> None:
    note(log, str(os.getpid()))
    os._exit(9)


@app.handler(policy=TIGHT, attempts_max=1, isolation="process")
def with_children(log: str) -> None:
    """A handler that has started a program, which must end with the handler."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        note(log, f"{os.getpid()} {child.pid}")
        child.wait()


@app.handler(isolation="process")
def signs(job: Context) -> str:
    """A handler whose beats are signed like those of its worker."""
    job.checkpoint({"place": 1})
    return "signed"


@app.handler(isolation="process", attempts_max=1)
def forks(log: str) -> str:
    """The process and its fork both return from here."""
    os.fork()
    note(log, str(os.getpid()))
    return "forked"


@app.handler(isolation="process", attempts_max=2, policy=TIGHT)
def miscalls(job: Context) -> None:
    job.checkpoint({1, 2})


@app.handler(isolation="process")
def named(name: str) -> str:
    return name


@app.handler(isolation="process", attempts_max=1)
def leaves_an_heir(log: str) -> None:
    """Kill the process while a fork of it runs in its own session, with the same open descriptors."""
    if os.fork() == 0:
        os.setsid()
        note(log, str(os.getpid()))
        time.sleep(600)
    wait_for(log)
    os._exit(9)


@app.handler(isolation="process")
def odd(what: str) -> Any:
    return {"nan": float("nan"), "surrogate": "\ud800", "integer": 2**70, "object": object()}[what]


@app.handler(isolation="process")
def later() -> None:
    raise TransientError("later", retry_after=timedelta(minutes=5))


@app.handler(policy=TIGHT, attempts_max=1, isolation="process", timeout="2s")
def endless(log: str) -> None:
    note(log, str(os.getpid()))
    while True:
        pass


@app.handler(policy={**TIGHT, "cancel_grace": 60}, isolation="process")
def asked(job: Context, log: str) -> None:
    note(log, str(os.getpid()))
    job.progress(7, stage="waiting")
    while not job.cancelled:
        time.sleep(0.01)
    job.checkpoint("on my way out")
    job.check_cancelled()


@app.handler(isolation="process")
async def everything(job: Context, n: int) -> dict[str, Any]:
    """Use every method of the context in a child process."""
    job.beat(progress=n)
    job.may_proceed()
    made = job.enqueue(count, log=os.devnull, n=n)
    return {"child": made.id, "pid": os.getpid()}


@app.handler(isolation="process")
def counts(wrong: bool) -> tuple[int, str]:
    return (1, 2) if wrong else (1, "one")  # type: ignore[return-value]


@app.handler(isolation="process")
def says(job: Context, end: str) -> None:
    """Report progress and end at once."""
    job.progress(50, stage="done")
    if end == "beats":
        job.beat(progress=100)
        return
    job.progress(100)
    if end == "fails":
        raise PermanentError("no such page")


@app.handler(isolation="process", attempts_max=1)
def mumbles(job: Context) -> None:
    """Report what cannot be read, and what has to be rounded."""
    job.progress(float("nan"), stage="x" * 300)
    job.beat(stage=1, progress="half")  # type: ignore[arg-type]
    job.request_assist("yes")  # type: ignore[arg-type]
    job.beat(progress=33.3)
    job.progress(0.5)


@app.handler(policy=TIGHT, isolation="process", gate=True)
def passes(job: Context) -> str:
    """Run longer than the limit of silence. The parent process sends the beats."""
    time.sleep(2.5)
    with job.may_proceed():
        found = job.receipt()
    assert found is not None
    return found.run_id


@app.handler(policy=TIGHT, isolation="process", gate=True)
async def passes_async(job: AsyncContext) -> str:
    return passes(job)


@app.handler(policy=TIGHT, attempts_max=3)
def saved(job: Context, log: str) -> Any:
    """Each attempt does one page and is killed. The next one continues from there."""
    page = (job.restored or {"page": 0})["page"]
    note(log, f"{job.job.attempt} {page}")
    job.checkpoint({"page": page + 1})
    if job.job.attempt < 3:
        os._exit(9)
    return page


OFTEN: PolicyFields = {**TIGHT, "attempts_max": 1_000}
"""The policy for workers that are killed often."""


@app.handler(policy=OFTEN)
def worked(job: Context, log: str, seconds: float) -> int:
    job.checkpoint({"attempt": job.job.attempt})
    time.sleep(seconds)
    job.may_proceed()
    note(log, f"{job.job.id} {job.job.attempt}")
    return job.job.attempt


@app.handler(policy=OFTEN, isolation="process")
def worked_apart(job: Context, log: str, seconds: float) -> int:
    return worked(job, log, seconds)


@app.handler(policy=OFTEN)
def flaky(job: Context, log: str, seconds: float) -> int:
    if job.job.attempt % 2:
        raise TransientError("again")
    return worked(job, log, seconds)


@app.handler(policy=OFTEN)
def doomed(job: Context, log: str, seconds: float) -> None:
    time.sleep(seconds)
    raise PermanentError("it never works")


if __name__ == "__main__":
    settings = dict(setting.split("=", 1) for setting in sys.argv[2:])
    if "hook" in settings:
        webhook = WebhookSink(
            settings.pop("hook"), secret=SECRET, allow_private=True, start="beginning", headers={"X-Worker": sys.argv[1]}
        )
        app.sink(webhook)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    given: Any = {name: int(value) if value.isdigit() else value for name, value in settings.items()}
    app.work(name=sys.argv[1], **given)
