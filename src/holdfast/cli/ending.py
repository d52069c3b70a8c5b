"""How a command ends: what is said of a failure, and the exit code."""

import errno
import os
import sys
from collections.abc import Callable, Sequence

import click

from holdfast.cli.envelope import HINTS, Failed, failure, misuse
from holdfast.cli.page import Page
from holdfast.errors import HoldfastError
from holdfast.telemetry.lines import visible

REFUSED, UNAVAILABLE = 1, 3
INTERRUPTED, UNREAD = 130, 141
"""As shells say it of a program that SIGINT or SIGPIPE has ended."""
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Unread(Exception):
    """Nobody reads the answer any more."""


def ended(run: Callable[[], object], given: Sequence[str]) -> int:
    """The exit code of what `run` does, once everything is said. `given` is what was typed."""
    try:
        code = _ended(run, given)
        return code or _flushed()
    except (Unread, BrokenPipeError):
        return UNREAD
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        forget_output()


def _flushed() -> int:
    """What is said last may be the first that finds no room."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        return _unwritten(error)
    return 0


def _unwritten(error: OSError) -> int:
    if error.errno not in _UNWRITTEN:
        raise error
    return Page().fail(f"the answer cannot be written: {error.strerror}")


def _ended(run: Callable[[], object], given: Sequence[str]) -> int:
    try:
        code = run()
    except click.Abort:
        return _fail(Failed("interrupted", "interrupted", exit_code=INTERRUPTED), given)
    except click.UsageError as error:
        return _misunderstood(error, given)
    except click.ClickException as error:
        return _fail(Failed("error", error.format_message()), given)
    except (HoldfastError, Failed) as error:
        return _fail(error, given)
    except OSError as error:
        return _unwritten(error)
    return code if isinstance(code, int) else 0


def _fail(error: HoldfastError | Failed, given: Sequence[str]) -> int:
    error.message, error.action = _without_typed(error.message, given), _without_typed(error.action, given)
    if "--json" in given:
        click.echo(failure(error))
    elif isinstance(error, Failed) and error.is_told:
        pass
    else:
        Page().fail(f"{error.code}: {error.message}" if isinstance(error, HoldfastError) else error.message, error.action)
    return exit_code_of(error)


def _without_typed(message: str, given: Sequence[str]) -> str:
    """`message` without the urls that were typed. What can take them out is imported only where there is one."""
    if "postgres" not in " ".join(given).lower():
        return message
    from holdfast.core.urls import without_typed

    return without_typed(message, given)


def exit_code_of(error: HoldfastError | Failed) -> int:
    if isinstance(error, Failed):
        return error.exit_code
    return UNAVAILABLE if error.fault == "store" else REFUSED


def _misunderstood(error: click.UsageError, given: Sequence[str]) -> int:
    """Click would repeat what was typed as it is; here it is made visible first, in one line."""
    said = _without_typed(" ".join(error.format_message().split("\n")).replace("\t", ""), given)
    hint = HINTS.get(_missing(error))
    if "--json" in given:
        return _fail(misuse(said, action=hint) if hint else misuse(said), given)
    if error.ctx is not None:
        # One line tells what to try: where there is a hint, it does.
        more = "" if hint else f"Try '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n"
        click.echo(f"{error.ctx.get_usage()}\n{more}", err=True)
    click.echo(f"Error: {visible(said)}" + (f"\nTry: {hint}" if hint else ""), err=True)
    return error.exit_code


def _missing(error: click.UsageError) -> str:
    """The name of the option that was not given."""
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else param.name or ""


def forget_output() -> None:
    """Python would complain at its end about what it could not write, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
