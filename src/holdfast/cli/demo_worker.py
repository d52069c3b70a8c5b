"""A worker of the demo: claims jobs, does them, completes them, until its standard input ends.

Arguments: the queue and the worker's name; the ledger is HOLDFAST_URL. It speaks in lines of JSON on its standard output.
"""

import hashlib
import os
import select
import sys
from typing import Any

import msgspec

import holdfast

LOOK_SECONDS = 0.1
"""How often to look for a job whose backoff is over: nothing rings for that."""


def digest(text: str) -> str:
    """The work itself."""
    return hashlib.sha256(text.encode()).hexdigest()


def say(**fields: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(fields) + b"\n")
    sys.stdout.buffer.flush()


def dismissed() -> bool:
    """The parent has closed this worker's standard input, or has died, which does the same."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def do(ledger: holdfast.Ledger, job: holdfast.Job) -> None:
    assert job.fence is not None
    if job.args["fatal"] and job.attempt == 1:
        # Only the demo tells anybody its token: the parent wants to play this worker's ghost.
        say(says="started", job=job.id, attempt=job.attempt, token=job.fence.token)
        sys.stdin.read()
    ledger.complete(job.fence, {"sha256": digest(job.args["text"]), "by": job.fence.worker})


def work(url: str, queue: str, name: str) -> int:
    """How many jobs were done."""
    done = 0
    with holdfast.open(url) as ledger:
        bell = ledger.waiter()
        say(says="ready", pid=os.getpid())
        while not dismissed():
            held = ledger.claim(name, [queue], start=True)
            for job in held:
                do(ledger, job)
                done += 1
            if not held:
                bell.wait(LOOK_SECONDS)
        bell.close()
    return done


if __name__ == "__main__":
    say(says="finished", done=work(os.environ["HOLDFAST_URL"], *sys.argv[1:]))
