"""Forks processes that run one function at the same time, and prints their answers as one JSON list.

The forks come before anything is opened, so each process opens the ledger for itself.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any


def main(module: str, name: str, count: int, arguments: dict[str, Any]) -> None:
    function = getattr(importlib.import_module(module), name)
    start_read, start_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pipes: dict[int, int] = {}
    for number in range(count):
        answer_read, answer_write = os.pipe()
        if os.fork() == 0:
            os.close(start_write)

            def go() -> None:
                os.write(ready_write, b"!")
                os.read(start_read, 1)

            status = 1
            try:
                answer = json.dumps(function(number, go, **arguments)).encode()
                with os.fdopen(answer_write, "wb") as pipe:
                    pipe.write(answer)
                status = 0
            except BaseException:  # noqa: BLE001 - the child must not run on into its parent's code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(answer_write)
        pipes[number] = answer_read
    os.close(ready_write)
    ready = 0
    while ready < count and (said := os.read(ready_read, count)):
        ready += len(said)
    os.close(start_write)
    answers = []
    for answer_fd in pipes.values():
        with os.fdopen(answer_fd, "rb") as said_pipe:
            answers.append(said_pipe.read())
    if any(os.wait()[1] for _ in range(count)):
        sys.exit("a process of the fleet failed")
    sys.stdout.write(json.dumps([json.loads(answer) for answer in answers]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.load(sys.stdin))
