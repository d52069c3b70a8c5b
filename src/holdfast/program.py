"""The program `holdfast`. What an agent calls all day is done before anything large is read."""

import os
import sys

INTERRUPTED, UNREAD = 130, 141


def main() -> None:
    """Runs what was typed, and exits."""
    try:
        if sys.argv[1:3] == ["task", "heartbeat"] and _beat(sys.argv[3:]):
            return
        from holdfast.cli import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _beat(arguments: list[str]) -> bool:
    """Whether that was an everyday beat, which is done then."""
    from holdfast.quick import beat

    said = beat(arguments)
    if said is not None:
        try:
            sys.stdout.write(said)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(UNREAD)
    return said is not None
