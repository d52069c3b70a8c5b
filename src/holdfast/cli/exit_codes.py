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
"""The codes that shells use for a program that SIGINT or SIGPIPE has ended."""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class OutputClosed(Exception):
    """The reader of the output is gone."""


def run_command(run: Callable[[], object], given: Sequence[str]) -> int:
    """Call `run`, report its failure, flush the output and return the exit code. `given` are the arguments that were typed."""
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
    """Flush standard output: a full disk may show only now."""
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
    elif isinstance(error, CommandError) and error.is_printed:
        pass
    else:
        Page().fail(f"{error.code}: {error.message}" if isinstance(error, HoldfastError) else error.message, error.action)
    return exit_code_of(error)


def _redact_urls(message: str, given: Sequence[str]) -> str:
    """Return `message` without the urls that were typed. Import the code for that only if one may be there."""
    if "postgres" not in " ".join(given).lower():
        return message
    from holdfast.core.urls import redact_urls

    return redact_urls(message, given)


def exit_code_of(error: HoldfastError | CommandError) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    return UNAVAILABLE if error.fault == "store" else REFUSED


def _report_usage_error(error: click.UsageError, given: Sequence[str]) -> int:
    """Print a usage error in one line, with control characters escaped. Click would print what was typed unchanged."""
    message = _redact_urls(" ".join(error.format_message().split("\n")).replace("\t", ""), given)
    hint = HINTS.get(_missing_option(error))
    if "--json" in given:
        return _report_error(usage_error(message, action=hint) if hint else usage_error(message), given)
    if error.ctx is not None:
        # Print one suggestion only: the hint if there is one, else --help.
        more = "" if hint else f"Try '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n"
        click.echo(f"{error.ctx.get_usage()}\n{more}", err=True)
    click.echo(f"Error: {printable(message)}" + (f"\nTry: {hint}" if hint else ""), err=True)
    return error.exit_code


def _missing_option(error: click.UsageError) -> str:
    """Return the name of the option that is missing, or an empty text."""
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else param.name or ""


def discard_unwritten_output() -> None:
    """Discard output that cannot be written. Python would report it at exit and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
