"""Run a command, report its failure and return its exit code."""

import errno
import os
import sys
from collections.abc import Callable, Sequence

import click

from holdfast.cli.output import HINTS, CommandError, Page, failure_line, usage_error
from holdfast.errors import HoldfastError
from holdfast.telemetry.formatters import printable

REFUSED, UNAVAILABLE = 1, 3
INTERRUPTED, OUTPUT_CLOSED = 130, 141
"""As shells say it of a program that SIGINT or SIGPIPE has ended."""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class OutputClosed(Exception):
    """Nobody reads the answer any more."""


def run_command(run: Callable[[], object], given: Sequence[str]) -> int:
    """The exit code of what `run` does, once everything is said. `given` is what was typed."""
    try:
        code = _run_and_report(run, given)
        return code or _flush_output()
    except (OutputClosed, BrokenPipeError):
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        discard_unwritten_output()


def _flush_output() -> int:
    """What is said last may be the first that finds no room."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        return _report_write_error(error)
    return 0


def _report_write_error(error: OSError) -> int:
    if error.errno not in _DISK_ERRORS:
        raise error
    return Page().fail(f"the answer cannot be written: {error.strerror}")


def _run_and_report(run: Callable[[], object], given: Sequence[str]) -> int:
    try:
        code = run()
    except click.Abort:
        return _report_error(CommandError("interrupted", "interrupted", exit_code=INTERRUPTED), given)
    except click.UsageError as error:
        return _report_usage_error(error, given)
    except click.ClickException as error:
        return _report_error(CommandError("error", error.format_message()), given)
    except (HoldfastError, CommandError) as error:
        return _report_error(error, given)
    except OSError as error:
        return _report_write_error(error)
    return code if isinstance(code, int) else 0


def _report_error(error: HoldfastError | CommandError, given: Sequence[str]) -> int:
    error.message, error.action = _redact_urls(error.message, given), _redact_urls(error.action, given)
    if "--json" in given:
        click.echo(failure_line(error))
    elif isinstance(error, CommandError) and error.is_told:
        pass
    else:
        Page().fail(f"{error.code}: {error.message}" if isinstance(error, HoldfastError) else error.message, error.action)
    return exit_code_of(error)


def _redact_urls(message: str, given: Sequence[str]) -> str:
    """`message` without the urls that were typed. What can take them out is imported only where there is one."""
    if "postgres" not in " ".join(given).lower():
        return message
    from holdfast.core.urls import redact_urls

    return redact_urls(message, given)


def exit_code_of(error: HoldfastError | CommandError) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    return UNAVAILABLE if error.fault == "store" else REFUSED


def _report_usage_error(error: click.UsageError, given: Sequence[str]) -> int:
    """Click would repeat what was typed as it is; here it is made visible first, in one line."""
    said = _redact_urls(" ".join(error.format_message().split("\n")).replace("\t", ""), given)
    hint = HINTS.get(_missing_option(error))
    if "--json" in given:
        return _report_error(usage_error(said, action=hint) if hint else usage_error(said), given)
    if error.ctx is not None:
        # One line tells what to try: where there is a hint, it does.
        more = "" if hint else f"Try '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n"
        click.echo(f"{error.ctx.get_usage()}\n{more}", err=True)
    click.echo(f"Error: {printable(said)}" + (f"\nTry: {hint}" if hint else ""), err=True)
    return error.exit_code


def _missing_option(error: click.UsageError) -> str:
    """The name of the option that was not given."""
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else param.name or ""


def discard_unwritten_output() -> None:
    """Python would complain at its end about what it could not write, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
