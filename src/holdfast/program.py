"""The program `holdfast`. The command that agents call most often runs before any large module is imported."""

import os
import sys

INTERRUPTED, OUTPUT_CLOSED = 130, 141


def main() -> None:
    """Run the command line, and exit."""
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

    Without the first, the next file that is opened would get the stream's number, and output would be written to that file.
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
    """Try to record a plain heartbeat, and return whether that was done."""
    from holdfast.fast_heartbeat import try_heartbeat

    output = try_heartbeat(arguments)
    if output is not None:
        try:
            sys.stdout.write(output)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(OUTPUT_CLOSED)
    return output is not None
