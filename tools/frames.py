"""Count the stack frames of Holdfast between a public call and the database driver: `python -m tools.frames [-v] [URL]`.

A frame counts if its code is in src/holdfast. The count of a call is that of its deepest statement. With
`-v`, the stacks are printed too.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast

OURS = str(Path(holdfast.__file__).parent)
STATEMENTS = ("execute", "executemany")
"""The functions of both drivers that run SQL."""


class Counter:
    """Watches one call, and keeps the deepest stack that reached a driver."""

    def __init__(self) -> None:
        self.deepest: list[str] = []

    def watch(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        sys.setprofile(self._profile)
        try:
            return call(*args, **kwargs)
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            is_driver = frame.f_globals.get("__name__", "").startswith("psycopg")
            if is_driver and frame.f_code.co_name in STATEMENTS and frame.f_back is not None:
                self._note(frame.f_back)
        elif event == "c_call" and called.__name__ in STATEMENTS and type(called.__self__).__module__.startswith("apsw"):
            self._note(frame)

    def _note(self, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("psycopg"):
                return
            if frame.f_code.co_filename.startswith(OURS):
                stack.append(f"{Path(frame.f_code.co_filename).relative_to(OURS)}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]


def measure(url: str) -> dict[str, list[str]]:
    """The deepest stack of each verb."""
    app = holdfast.App(url)

    @app.handler(kind="frames.add")
    def add(one: int) -> int:
        return one

    ledger = app.ledger
    counters: dict[str, Counter] = {}

    def watch(verb: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counters[verb] = Counter()
        return counters[verb].watch(call, *args, **kwargs)

    for number in range(2):  # the first time, connections are opened and statements prepared
        watch("app.enqueue", app.enqueue, add, 1)
        watch("app.enqueue_many", app.enqueue_many, add, [{"one": 1}, {"one": 2}])
        watch("enqueue", ledger.enqueue, "frames.add", {"one": 1})
        ledger.enqueue("frames.add", {"one": 1})
        [first] = watch("claim", ledger.claim, "frames", start=True)
        [second] = watch("claim by a worker", ledger.claim, "frames", start=True, keep=False)
        [third], [fourth] = ledger.claim("frames", start=True), ledger.claim("frames", start=True)
        watch("heartbeat", ledger.heartbeat, first.fence)
        watch("heartbeat_many", ledger.heartbeat_many, [first.fence, second.fence])
        watch("complete", ledger.complete, first.fence, 1)
        watch("complete by a worker", ledger.settle_many, [(second.fence, 1)], request_id=f"frames-{number}")
        [fifth] = ledger.claim("frames", start=True, keep=False)
        watch("complete a claim", ledger.settle_alike, [fifth], None, request_id=f"frames-{number}")
        watch("complete_many", ledger.complete_many, [(third.fence, 1)])
        watch("fail", ledger.fail, fourth.fence, "no")
        watch("cancel", ledger.cancel, fourth.id)
        watch("get", ledger.get, first.id)
    ledger.close()
    return {verb: counter.deepest for verb, counter in counters.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        urls = [argument for argument in sys.argv[1:] if argument != "-v"]
        found = measure(urls[0] if urls else f"sqlite:///{folder}/frames.db")
    for verb, stack in found.items():
        sys.stdout.write(f"{len(stack):3}  {verb}\n")
        if "-v" in sys.argv:
            sys.stdout.write("".join(f"        {line}\n" for line in stack))


if __name__ == "__main__":
    main()
