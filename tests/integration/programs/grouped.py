"""Claim jobs and end them, over and over: one in twenty fails and is replayed. Say how many jobs were ended."""

import json
import sys

import holdfast


def say(fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main(url: str, name: str) -> None:
    ended = 0
    with holdfast.open(url) as ledger:
        say(["ready"])
        while True:
            for job in ledger.claim(name, ["load"], limit=3, start=True):
                if job.id % 20 == 0 and job.record.replay_of is None:
                    ledger.fail(job.fence, "first try", retryable=False)
                    ledger.replay(job.id)
                else:
                    ledger.complete(job.fence, None)
                ended += 1
                say(ended)
            ledger.sweep()


if __name__ == "__main__":
    main(*sys.argv[1:])
