"""Fork while other threads are in the middle of transactions. Print the answers that the children and the threads got."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast


def refused(act: Callable[[], Any]) -> str:
    try:
        act()
    except holdfast.HoldfastError as error:
        return error.code
    return "answered"


def child(number: int, inherited: holdfast.Ledger, url: str) -> dict[str, Any]:
    """Use the inherited ledger, open it again, write, and close everything."""
    said: dict[str, Any] = {"used": refused(lambda: inherited.enqueue("inherited")), "read": refused(inherited.counts)}
    if number % 2:
        inherited.close()
    with holdfast.open(url) as again:
        said["made"] = [again.enqueue("child").id for _ in range(3)]
        assert again.get(said["made"][0]).kind == "child"
    return said


def fork(number: int, ledger: holdfast.Ledger, url: str) -> dict[str, Any]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            said = child(number, ledger, url)
        except BaseException as error:  # noqa: BLE001 - the test reports every error
            said = {"error": repr(error)}
        os.write(writer, json.dumps(said).encode())
        # A normal exit, so that the objects that the child inherited are finalized.
        sys.exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = json.loads(pipe.read() or b"{}")
    _, status = os.waitpid(pid, 0)
    return {**said, "status": status}


def pooled(url: str) -> int:
    with holdfast.open(url) as again:
        return again.enqueue("pooled").id


def main(url: str, forks: int) -> None:
    ledger = holdfast.open(url)
    stop = threading.Event()
    made: list[int] = []
    errors: list[str] = []

    def work() -> None:
        while not stop.is_set():
            try:
                made.append(ledger.enqueue("parent").id)
                ledger.counts()
            except BaseException as error:  # noqa: BLE001 - likewise
                errors.append(repr(error))

    def wait() -> None:
        waiter = ledger.waiter()
        while not stop.is_set():
            waiter.wait(0.01)
        waiter.close()

    threads = [threading.Thread(target=target) for target in (work, work, work, wait)]
    for thread in threads:
        thread.start()
    while len(made) < 10:
        time.sleep(0.001)
    children = [fork(number, ledger, url) for number in range(forks)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pooled_ids = pool.map(pooled, [url] * 4)
    stop.set()
    for thread in threads:
        thread.join()
    after = ledger.enqueue("after").id
    ledger.close()
    said = {"made": made, "errors": errors, "children": children, "pooled": pooled_ids, "after": after}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
