"""The app that the demo's workers run: `holdfast worker run holdfast.demo.app:app`.

HOLDFAST_URL is the ledger, HOLDFAST_DEMO_QUEUE the queue. With HOLDFAST_DEMO_HOUR, the app also has the kinds of the made-up jobs
that `holdfast demo --serve` shows. A process that runs this app ends when its parent ends.
"""

import os
import signal
import sys
import threading
from typing import Any

import msgspec

from holdfast import App, Context
from holdfast.demo.hour import KINDS
from holdfast.demo.verification import digest

app = App(os.environ["HOLDFAST_URL"])


# One job at a time, so that the killed worker loses only the job that the demo reports on.
@app.handler("demo.digest", queue=os.environ["HOLDFAST_DEMO_QUEUE"], concurrency=1)
def digest_page(job: Context, text: str, fatal: bool) -> dict[str, Any]:
    """Hash a text. The first attempt of the fatal job reports that it has started, then waits to be killed."""
    if fatal and job.job.attempt == 1:
        # Only the demo prints a token: the parent uses it for a late write under this worker's fence.
        started = {"job": job.job.id, "attempt": job.fence.attempt, "token": job.fence.token, "worker": job.fence.worker}
        sys.stdout.buffer.write(msgspec.json.encode(started) + b"\n")
        sys.stdout.buffer.flush()
        threading.Event().wait()
    return {"sha256": digest(text), "by": job.fence.worker}


def pretend(job: Context, number: int) -> dict[str, str]:
    """Wait for a time between 0.2 and 3 s, depending on the number, instead of resizing an image or sending a mail."""
    threading.Event().wait(0.2 + number % 29 / 10)
    return {"by": job.fence.worker}


if "HOLDFAST_DEMO_HOUR" in os.environ:
    for kind, queue in KINDS.items():
        app.handler(kind, queue=queue)(pretend)


def _exit_with_parent() -> None:
    """End this process when the parent ends. The parent's end closes standard input, even after SIGKILL."""
    # os.read instead of sys.stdin: the interpreter cannot exit while a thread reads sys.stdin.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_exit_with_parent, name="demo-parent", daemon=True).start()
