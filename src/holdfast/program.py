"""The program `holdfast`. What an agent calls all day is done before anything large is read."""

import os
import sys

INTERRUPTED, OUTPUT_CLOSED = 130, 141


def main() -> None:
    """Runs what was typed, and exits."""
    _prepare_streams()
    try:
        if sys.argv[1:3] == ["task", "heartbeat"] and _try_heartbeat(sys.argv[3:]):
            return
        from holdfast.cli import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _prepare_streams() -> None:
    """Open /dev/null for each standard stream that is closed, and escape what a stream's encoding cannot spell.

    Without the first, the next file that is opened would get the stream's number, and with it whatever is written there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this stream's own
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, "w" if number else "r", encoding="utf-8"))
        elif number and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _try_heartbeat(arguments: list[str]) -> bool:
    """Whether that was an everyday beat, which is done then."""
    from holdfast.fast_heartbeat import try_heartbeat

    said = try_heartbeat(arguments)
    if said is not None:
        try:
            sys.stdout.write(said)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(OUTPUT_CLOSED)
    return said is not None
