"""The app that the demo's workers run: `holdfast worker run holdfast.demo.app:app`.

HOLDFAST_URL is the ledger, HOLDFAST_DEMO_QUEUE the queue. A process that runs this app ends when its parent ends.
"""

import os
import signal
import sys
import threading
from typing import Any

import msgspec

from holdfast import App, Context
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


def _exit_with_parent() -> None:
    """End this process when the parent ends. The parent's end closes standard input, even after SIGKILL."""
    # os.read instead of sys.stdin: the interpreter cannot exit while a thread reads sys.stdin.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_exit_with_parent, name="demo-parent", daemon=True).start()
