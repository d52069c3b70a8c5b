"""Sweep over and over, and tell how many jobs schedules have made."""

import json
import sys

import holdfast


def say(fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main(url: str) -> None:
    with holdfast.open(url) as ledger:
        say(["ready"])
        while True:
            say(ledger.sweep().get("enqueued", 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
