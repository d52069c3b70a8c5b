"""Which Holdfast this is, and how it is installed."""

__version__ = "0.1.0"


def install_command(extra: str) -> str:
    """Return the command that installs Holdfast with an extra."""
    from _holdfast_program import DISTRIBUTION

    return f"pip install '{DISTRIBUTION}[{extra}]'"
