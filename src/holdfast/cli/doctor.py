"""`holdfast doctor`: is the ledger well?"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast import __version__
from holdfast.cli.address import is_new, ledger_url, without_password
from holdfast.cli.envelope import Failed
from holdfast.cli.frame import UNAVAILABLE, Answer, as_json_option, db_option, key_option, loaded_keys, open_ledger, say
from holdfast.cli.page import Page
from holdfast.cli.pasting import pasteable

if TYPE_CHECKING:
    from holdfast.core.doctor import Diagnosis


@click.command()
@key_option
@db_option
@as_json_option
def doctor(*, keys: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Say whether the ledger is well: exit 0 if it is, 1 if somebody has to do something, 3 if it is out of reach.

    Looks at the schema, the clocks, the files or the server, and at everything that may be stuck. A ledger that is not there is
    not made.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --db postgresql://db.example/jobs --json
    """
    url = ledger_url(db)
    named = without_password(url)
    if is_new(url):
        raise Failed("no_ledger", f"there is no ledger at {named}", action="Check --db.", exit_code=UNAVAILABLE, url=named)
    with open_ledger(url, loaded_keys(keys)) as ledger:
        found = _with_commands(ledger.diagnose(clock=lambda: datetime.now(UTC)))
    whole = {"url": named, "holdfast_version": __version__, **msgspec.structs.asdict(found)}
    say(Answer(whole, lambda page: _show(page, found, named), _unwell(found, whole)), as_json)


def _with_commands(found: "Diagnosis") -> "Diagnosis":
    findings = [msgspec.structs.replace(finding, action=pasteable(finding.action)) for finding in found.findings]
    return msgspec.structs.replace(found, findings=findings)


def _unwell(found: "Diagnosis", whole: dict[str, Any]) -> Failed | None:
    wrong = [finding for finding in found.findings if finding.severity == "warning"]
    if not wrong:
        return None
    words = f"{len(wrong)} thing{' needs' if len(wrong) == 1 else 's need'} somebody: {', '.join(f.code for f in wrong)}"
    return Failed("unwell", words, action="Do what each finding says.", **whole)


def _show(page: Page, found: "Diagnosis", url: str) -> None:
    page.line(f"Ledger {found.ledger_id} at {url}", bold=True)
    page.line(f"{found.store_version}, schema {found.schema_version}; Holdfast {__version__}")
    page.heading("Findings")
    for finding in found.findings:
        loud = {"fg": "red"} if finding.severity == "warning" else {}
        page.line(f"  {finding.severity.value.ljust(7)}  {finding.code.ljust(18)}  {finding.words}", **loud)
        if finding.action:
            page.line(f"  {' ' * 27}  → {finding.action}")
    if found.well:
        page.line()
        page.line("All is well." if all(f.severity == "well" for f in found.findings) else "Nobody has to do anything.")
