"""Open a ledger and run the verbs on standard input, with one JSON line for each answer. The caller chooses the
version of Holdfast.

A worker in the same process runs the jobs of one queue. A job of the kind "hold" runs until the line "release".
"""

import json
import sys
import threading
from typing import Any

import holdfast
from holdfast import App, Fence, Ledger

free = threading.Event()


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def enqueue(ledger: Ledger, kind: str, queue: str) -> int:
    return ledger.enqueue(kind, queue=queue).id


def claim(ledger: Ledger, worker: str) -> list[Any]:
    return [
        [job.fence.job_id, job.fence.attempt, job.fence.token, job.fence.worker, job.fence.incarnation]
        for job in ledger.claim(worker, start=True)
    ]


def beat(ledger: Ledger, *fence: Any) -> None:
    ledger.heartbeat(Fence(*fence), stage="half", checkpoint={"at": 1})


def complete(ledger: Ledger, *fence: Any) -> None:
    ledger.complete(Fence(*fence), {"done": True})


def manage(ledger: Ledger, queue: str) -> list[str]:
    """Calls of operators and services, each of which writes to another table."""
    ledger.set_policy("work", attempts_max=2)
    ledger.unset_policy("work")
    ledger.pause(queue, reason="test")
    paused = sorted(ledger.paused())
    ledger.unpause(queue)
    assert ledger.take_duty(f"duty-{queue}", "test", ttl="10s")
    ledger.sweep()
    first = ledger.enqueue("first", queue=queue, request_id=f"first-{queue}")
    assert ledger.enqueue("first", queue=queue, request_id=f"first-{queue}").id == first.id
    last = ledger.enqueue("last", queue=queue, depends_on=[first.id], dedupe_key=queue)
    ledger.cancel(first.id)
    assert ledger.get(last.id).status == "dead_lettered"
    ledger.prune(requests_before=ledger.now())
    return paused


def release(ledger: Ledger) -> None:
    free.set()


def diagnose(ledger: Ledger) -> str:
    return next(finding.words for finding in ledger.diagnose().findings if finding.code == "schema")


def main(url: str, queue: str) -> None:
    try:
        ledger = holdfast.open(url)
    except holdfast.HoldfastError as refused:
        say([refused.code, refused.context["found"], refused.context["known"]])
        return
    app = App(url)

    @app.handler(queue=queue, policy={"heartbeat_interval": 1, "missed_beats_max": 60, "lease_ttl": 60})
    def hold() -> str:
        assert free.wait(120)
        return queue

    @app.handler(queue=queue)
    def work() -> str:
        return queue

    with app.worker(name=f"worker-{queue}") as worker:
        worker.start()
        say([ledger.id, ledger.schema.version])
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            say(globals()[verb](ledger, *arguments))
    ledger.close()
    app.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
