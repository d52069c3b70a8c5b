"""The app that the demo's workers run: `holdfast worker run holdfast.demo.app:app`.

The ledger is HOLDFAST_URL, the queue HOLDFAST_DEMO_QUEUE. Every process that runs it ends with whoever started it.
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


# One at a time, so that the worker that is killed loses the one job that the demo tells of.
@app.handler("demo.digest", queue=os.environ["HOLDFAST_DEMO_QUEUE"], concurrency=1)
def digest_page(job: Context, text: str, fatal: bool) -> dict[str, Any]:
    """Hash a text. The first attempt at the fatal one tells that it has begun, and then waits for its end."""
    if fatal and job.job.attempt == 1:
        # Only the demo tells anybody its token: the parent wants to play this worker's ghost.
        said = {"job": job.job.id, "attempt": job.fence.attempt, "token": job.fence.token, "worker": job.fence.worker}
        sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
        sys.stdout.buffer.flush()
        threading.Event().wait()
    return {"sha256": digest(text), "by": job.fence.worker}


def _exit_with_parent() -> None:
    """Its end closes this process's standard input, whatever it died of."""
    # Not by way of sys.stdin: the interpreter cannot end while a thread reads that.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_exit_with_parent, name="demo-parent", daemon=True).start()
