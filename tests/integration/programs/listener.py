"""Waits for a ledger to change, in its own process, and reports when it was woken, by the clock that all processes share.

`waiter` waits with the ledger's waiter, `follow` waits for the next event, and `idle` measures the cost of an idle wait.
"""

import json
import os
import sys
import time

import holdfast


def say(*facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def listen(ledger: holdfast.Ledger) -> None:
    waiter = ledger.waiter()
    say("ready")
    while True:
        woken = waiter.wait(5)
        say(time.monotonic(), woken)
        if not sys.stdin.readline():
            return


def follow(ledger: holdfast.Ledger) -> None:
    say("ready")
    for event in ledger.follow():
        say(time.monotonic(), event.job_id)
        if not sys.stdin.readline():
            return


def idle(ledger: holdfast.Ledger, seconds: float) -> None:
    waiter = ledger.waiter()
    waiter.wait(0.01)
    before = os.times()
    woken = waiter.wait(seconds)
    between = os.times()
    events = sum(1 for _ in ledger.follow(ledger.events()[-1].pos, timeout=seconds))
    after = os.times()
    say([between.user + between.system - before.user - before.system, after.user + after.system - between.user - between.system])
    say(woken, events)


def enqueue(ledger: holdfast.Ledger) -> None:
    sys.stdin.readline()
    job = ledger.enqueue("work")
    at = time.monotonic()
    ledger.close()
    say(at, job.id)


if __name__ == "__main__":
    mode, url, *rest = sys.argv[1:]
    with holdfast.open(url) as opened:
        match mode:
            case "waiter":
                listen(opened)
            case "follow":
                follow(opened)
            case "idle":
                idle(opened, float(rest[0]))
            case "enqueue":
                say("ready")
                enqueue(opened)
