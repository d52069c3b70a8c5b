"""Runs commands on a ledger, one a line: `enqueue`, `stop` (SIGSTOP in the middle of a transaction), `get ID`."""

import json
import os
import signal
import sys
from typing import Any

import holdfast
from holdfast.store.session import Session


def stop(session: Session) -> None:
    """Take the write lock and stop until SIGCONT."""
    say(["stopping"])
    os.kill(os.getpid(), signal.SIGSTOP)


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(url: str) -> None:
    with holdfast.open(url) as ledger:
        say(["ready"])
        for line in sys.stdin:
            what, *given = line.split()
            try:
                match what:
                    case "enqueue":
                        say(["enqueued", ledger.enqueue("later").id])
                    case "stop":
                        ledger._store.transact("work", stop)
                        say(["went on"])
                    case "get":
                        say(["got", ledger.get(int(given[0])).status])
            except holdfast.HoldfastError as error:
                say([error.code, error.message, error.context.get("outcome"), error.action])


if __name__ == "__main__":
    main(sys.argv[1])
