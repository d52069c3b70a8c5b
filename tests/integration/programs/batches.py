"""Enqueue, claim and complete in batches until it is killed. Print each answer as a line of JSON."""

import json
import sys

import holdfast

ENQUEUE = 40
CLAIM = 25


def say(what: str, *facts: object) -> None:
    # One write, so that a line is printed whole or not at all.
    sys.stdout.write(json.dumps([what, *facts]) + "\n")
    sys.stdout.flush()


def main(url: str, life: int) -> None:
    ledger = holdfast.open(url)
    say("ready")
    batch = 0
    while True:
        batch += 1
        made = ledger.enqueue_many([{"kind": "batch", "args": {"life": life, "batch": batch}}] * ENQUEUE)
        say("enqueued", batch, [job.id for job in made])
        jobs = ledger.claim(f"worker-{life}", limit=CLAIM, start=True)
        say("claimed", [[job.id, job.attempt] for job in jobs])
        done = ledger.complete_many([(job.fence, {"life": life}) for job in jobs])
        say("completed", [change.job_id for change in done if isinstance(change, holdfast.Change)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
