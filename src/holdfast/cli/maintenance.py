"""`holdfast doctor`, `migrate` and `sweep`: check a ledger, and run a migration or a sweep by hand."""

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast import __version__
from holdfast.cli.command import (
    UNAVAILABLE,
    CommandResult,
    as_json_option,
    db_option,
    key_option,
    load_keys,
    open_ledger,
    print_result,
    with_db_option,
    with_ledger,
)
from holdfast.cli.config import ledger_url, without_password
from holdfast.cli.output import CommandError, Page, show_elapsed
from holdfast.core.limits import SWEEP_MAX
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.doctor import Diagnosis, HealthFinding
    from holdfast.ledger import Ledger


@click.command()
@key_option
@db_option
@as_json_option
def doctor(*, keys: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Check whether the ledger is healthy.

    Exit 0 if it is, 1 if something needs attention, 3 if the ledger cannot be reached.

    It checks the schema, the clocks, the files or the server, and everything that may be stuck. It does not create a ledger.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --db postgresql://db.example/jobs --json
    """
    url = ledger_url(db)
    named, ring = without_password(url), load_keys(keys)
    try:
        with open_ledger(url, ring, create=False) as ledger:
            found = _with_db_options(ledger.diagnose(clock=lambda: datetime.now(UTC)))
    except HoldfastError as error:
        print_result(_unreachable_result(error, named), as_json)
        return
    whole = {"url": named, "holdfast_version": __version__, **msgspec.structs.asdict(found)}
    failed = _unhealthy_error(found, whole)
    print_result(CommandResult(whole, lambda page: _show_diagnosis(page, found, named, failed), failed), as_json)


def _with_db_options(found: "Diagnosis") -> "Diagnosis":
    findings = [msgspec.structs.replace(finding, action=with_db_option(finding.action)) for finding in found.findings]
    return msgspec.structs.replace(found, findings=findings)


def _unreachable_result(error: HoldfastError, named: str) -> CommandResult:
    """Return the answer for a ledger that cannot be read. Its only finding is the error."""
    from holdfast.core.doctor import HealthFinding, Severity

    finding = HealthFinding("ledger", Severity.WARNING, f"{error.code}: {error.message}", with_db_option(error.action))
    whole = {**error.context, "url": named, "holdfast_version": __version__, "well": False, "findings": [finding]}
    failed = CommandError(error.code, error.message, action=error.action, exit_code=UNAVAILABLE, **whole)

    def show(page: Page) -> None:
        page.line(f"{named} cannot be read; Holdfast {__version__}", bold=True)
        _show_findings(page, [finding])

    return CommandResult(whole, show, failed)


def _unhealthy_error(found: "Diagnosis", whole: dict[str, Any]) -> CommandError | None:
    wrong = Counter(finding.code for finding in found.findings if finding.severity == "warning")
    if not wrong:
        return None
    named = ", ".join(code if times == 1 else f"{code} ({times})" for code, times in wrong.items())
    words = f"{wrong.total()} finding{' needs' if wrong.total() == 1 else 's need'} attention: {named}"
    failed = CommandError("unwell", words, action="Do what each finding says.", **whole)
    failed.is_printed = True
    return failed


def _show_diagnosis(page: Page, found: "Diagnosis", url: str, failed: CommandError | None) -> None:
    page.line(f"Ledger {found.ledger_id} at {url}", bold=True)
    page.line(f"{found.store_version}, schema {found.schema_version}; Holdfast {__version__}")
    _show_findings(page, found.findings)
    page.line()
    if failed is not None:
        page.line(f"{failed.message}.", fg="red")
    else:
        page.line("All is well." if all(f.severity == "well" for f in found.findings) else "No action is needed.")


def _show_findings(page: Page, findings: "Sequence[HealthFinding]") -> None:
    page.heading("Findings")
    for finding in findings:
        style = {"fg": "red"} if finding.severity == "warning" else {}
        page.line(f"  {finding.severity.value.ljust(7)}  {finding.code.ljust(18)}  {finding.words}", **style)
        if finding.action:
            page.line(f"  {' ' * 27}  → {finding.action}")


@click.command()
@with_ledger
def migrate(ledger: "Ledger") -> CommandResult:
    """Create or upgrade the tables of a ledger.

    Every command and every program that opens the ledger migrates it first. Use this command to migrate at a time of your own
    choice, before other programs open it.

    \b
    Try:
      holdfast migrate
    """
    schema = ledger.schema

    def show(page: Page) -> None:
        if not schema.applied:
            page.line(f"The ledger has schema {schema.version}, the newest that this Holdfast knows.")
            return
        was = f"had schema {schema.found}" if schema.found else "was empty"
        page.line(f"The ledger {was}, and has schema {schema.version} now: {', '.join(schema.applied)}.")

    return CommandResult({"ledger": ledger.id, **schema._asdict()}, show)


@click.command()
@click.option("--limit", type=click.IntRange(1, SWEEP_MAX), default=SWEEP_MAX, show_default=True, help="The most jobs to handle.")
@with_ledger
def sweep(ledger: "Ledger", *, limit: int) -> CommandResult:
    """Handle expired leases and other due work once.

    Workers do this many times a minute. Use it for a ledger that has no workers at the moment.

    \b
    Try:
      holdfast sweep
    """
    from holdfast.ledger.sweep import UNSIGNED

    with show_elapsed("sweeping"):
        made = ledger.sweep(limit=limit)
    unsigned = made.pop(UNSIGNED, 0)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(made.items())) or "nothing was due"
    skipped = f" Skipped because there is no server key: {unsigned}." if unsigned else ""
    return CommandResult({"events": made, "unsigned": unsigned}, lambda page: page.line(f"Swept: {counts}.{skipped}"))
