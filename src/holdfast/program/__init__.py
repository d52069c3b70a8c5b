"""The program `holdfast`. It tries the fast path of `task heartbeat` before it imports the command line."""

import os
import sys

INTERRUPTED, OUTPUT_CLOSED = 130, 141


def main() -> None:
    """Run the command in `sys.argv`, and exit."""
    _prepare_streams()
    try:
        if sys.argv[1:3] == ["task", "heartbeat"] and _try_heartbeat(sys.argv[3:]):
            return
        from holdfast.cli import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _prepare_streams() -> None:
    """Open /dev/null for each standard stream that is closed, and escape characters that a stream cannot encode.

    If a stream stayed closed, the next file to be opened would get its descriptor and receive its output.
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
    """Record a plain heartbeat and return True, or return False if the command line has to run it."""
    from holdfast.program.fast_heartbeat import try_heartbeat

    output = try_heartbeat(arguments)
    if output is not None:
        try:
            sys.stdout.write(output)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(OUTPUT_CLOSED)
    return output is not None
