"""An app whose handlers harm the process they run in. Run it with `holdfast worker run tests.blast.programs.harmful:app`."""

import asyncio
import contextlib
import os
import resource
import sys
import threading
import time
from pathlib import Path

from holdfast import App
from tests.worker.programs.jobs import note

app = App(os.environ["HOLDFAST_URL"])
HEADROOM_BYTES = 200 << 20
_leaked: list[int] = []


def eat_memory() -> None:
    """Set a memory limit that stays, and allocate until it is reached."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM_BYTES, resource.RLIM_INFINITY))
    eaten = []
    while True:
        eaten.append(bytearray(1 << 20))


def leak_descriptors() -> None:
    with contextlib.suppress(OSError):
        while True:
            _leaked.append(os.open(os.devnull, os.O_RDONLY))


def mend_descriptors() -> None:
    while _leaked:
        os.close(_leaked.pop())


def lose_environment() -> None:
    os.environ.clear()


def close_output() -> None:
    sys.stdout.close()
    sys.stderr.close()


def speak_on_every_descriptor(text: bytes) -> None:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if int(entry.name) > 2:
                os.write(int(entry.name), text)


def garble() -> None:
    speak_on_every_descriptor(b"garbled\n")


def pour() -> None:
    """Run until the process is ended from outside."""
    while True:
        speak_on_every_descriptor(b"x" * 65_536)


def leave_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()


HARM = {
    harm.__name__: harm
    for harm in (eat_memory, leak_descriptors, mend_descriptors, lose_environment, close_output, garble, pour, leave_a_thread)
}


@app.handler(attempts_max=1)
def in_thread(harm: str) -> None:
    HARM[harm]()


@app.handler(attempts_max=1)
async def in_loop(harm: str) -> None:
    HARM[harm]()


@app.handler(attempts_max=1, isolation="process")
def in_process(harm: str) -> None:
    HARM[harm]()


@app.handler(attempts_max=1)
def fork_in_thread(log: str, lives: bool) -> None:
    fork(log, lives)


@app.handler(attempts_max=1)
async def fork_in_loop(log: str, lives: bool) -> None:
    fork(log, lives)


def fork(log: str, lives: bool) -> None:
    """Fork. The fork returns from here like the process, or keeps running."""
    if os.fork() == 0:
        note(log, str(os.getpid()))
        if lives:
            time.sleep(600)


@app.handler(attempts_max=1)
def fine_in_thread(log: str, n: int) -> int:
    note(log, str(n))
    return n


@app.handler(attempts_max=1)
async def fine_in_loop(log: str, n: int) -> int:
    note(log, str(n))
    await asyncio.sleep(0)
    return n
