"""The program `holdfast`. What an agent calls all day is done before anything large is read."""

import sys


def main() -> None:
    """Runs what was typed, and exits."""
    if sys.argv[1:3] == ["task", "heartbeat"]:
        from holdfast.quick import beat

        said = beat(sys.argv[3:])
        if said is not None:
            sys.stdout.write(said)
            return
    from holdfast.cli import main as commands

    commands()
