"""Forks after a ledger was opened: every call of the child is refused, the parent continues."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import holdfast


def code(act: Callable[[], Any]) -> str:
    try:
        act()
    except holdfast.HoldfastError as error:
        return error.code
    except BaseException as error:  # noqa: BLE001 - the test reports every error
        return repr(error)
    return "answered"


def main(url: str, close_in_child: bool) -> None:
    ledger = holdfast.open(url)
    before = ledger.enqueue_many([{"kind": "before"}] * 3)
    [job] = ledger.claim("worker", start=True)
    fence = job.fence
    ledger.get(before[0].id)
    answer_read, answer_write = os.pipe()
    child = os.fork()
    if child == 0:
        acts: dict[str, Callable[[], Any]] = {
            "enqueue": lambda: ledger.enqueue("child"),
            "keyed": lambda: ledger.enqueue("child", dedupe_key="k"),
            "claim": lambda: ledger.claim("child"),
            "heartbeat": lambda: ledger.heartbeat(fence),
            "complete": lambda: ledger.complete(fence),
            "cancel": lambda: ledger.cancel(before[1].id),
            "pause": lambda: ledger.pause("default"),
            "set_policy": lambda: ledger.set_policy("child", attempts_max=2),
            "prune": lambda: ledger.prune(jobs_before=before[0].created_at),
            "sweep": ledger.sweep,
            "get": lambda: ledger.get(before[0].id),
            "list": ledger.list,
            "events": ledger.events,
            "counts": ledger.counts,
            "follow": lambda: next(ledger.follow(timeout=1)),
            "waiter": ledger.waiter,
            "take_duty": lambda: ledger.take_duty("sweep", "child", ttl="5s"),
            "sign_in": lambda: ledger.sign_in("child"),
            "workers": ledger.workers,
            "until_ready": ledger.until_ready,
            "policies": ledger.policies,
        }
        said = {name: code(act) for name, act in acts.items()}
        if close_in_child:
            said["close"] = code(ledger.close)
        os.write(answer_write, json.dumps(said).encode())
        # A normal exit, so that the objects that the child inherited are finalized.
        sys.exit(0)
    os.close(answer_write)
    with os.fdopen(answer_read, "rb") as pipe:
        refusals = json.loads(pipe.read())
    _, status = os.waitpid(child, 0)
    after = [
        code(lambda: ledger.enqueue("after")),
        code(lambda: ledger.heartbeat(fence)),
        code(lambda: ledger.claim("worker", limit=2)),
        code(lambda: ledger.complete(fence)),
        code(lambda: ledger.get(fence.job_id)),
        code(lambda: list(ledger.follow(timeout=0.1))),
    ]
    kinds = [[job.kind, job.status] for job in ledger.list()]
    ledger.close()
    sys.stdout.write(json.dumps([refusals, status, after, kinds]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "close")
