"""`holdfast verify`: check an export or a proof offline, with public keys and anchored heads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, as_json_option, db_option, open_ledger, print_result
from holdfast.cli.config import ledger_url
from holdfast.cli.output import CommandError, Page, ProgressLine, open_output, usage_error
from holdfast.core.limits import VERIFY_ANCHOR_BYTES_MAX, VERIFY_KEYS_BYTES_MAX
from holdfast.core.text import pluralize
from holdfast.errors import ValidationError
from holdfast.files.regular import read_regular

if TYPE_CHECKING:
    from holdfast.proof.verify import Finding, SignedLevel, TrustedKeys, VerificationReport, VerifyOptions
    from holdfast.proof.verify_tree import LocatedHead


def verify_options(
    keys: str | None, heads: tuple[Path, ...], allow_unsealed: bool, no_gone: bool, require_signed: "SignedLevel | None"
) -> "VerifyOptions":
    from holdfast.proof.verify import VerifyOptions

    try:
        trusted = None if keys is None else _read_trusted_keys(keys)
        anchors = [head for path in heads for head in _read_anchor_file(path)]
    except ValidationError as error:
        raise usage_error(error.message) from None
    return VerifyOptions(trusted, anchors, allow_unsealed, not no_gone, require_signed or "none")


def _read_anchor_file(path: Path) -> "list[LocatedHead]":
    from holdfast.proof.verify import read_anchor

    others: list[str] = []
    found = read_anchor(path.name, _read_text(path, VERIFY_ANCHOR_BYTES_MAX), others.append)
    if others:
        Page().remark(f"{path.name}: {pluralize(len(others), 'passage')} skipped: not a complete head.")
    return found


def _read_trusted_keys(keys: str) -> "TrustedKeys":
    from holdfast.proof.verify import parse_trusted

    is_key = keys.count("+") > 1 and not Path(keys).exists()
    return parse_trusted(keys if is_key else _read_text(Path(keys), VERIFY_KEYS_BYTES_MAX))


def _read_text(path: Path, bytes_max: int) -> str:
    try:
        return read_regular(path, bytes_max, pipes=True).decode()
    except OSError as error:
        raise usage_error(f"{path} cannot be read: {error.strerror}", action="Name another file.") from None
    except UnicodeDecodeError:
        raise usage_error(f"{path} is not text", action="Name another file.") from None


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--keys", "keys", metavar="FILE|KEY", help="Trusted keys: a file of `key export`, or a note key (name+hash+…).")
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Older heads that the file must agree with; may be repeated.",
)
@click.option("--allow-unsealed", is_flag=True, help="Accept events that are newer than the newest head.")
@click.option("--no-gone", is_flag=True, help="Refuse events that retention has deleted except for their hash.")
@click.option(
    "--require-signed", type=click.Choice(["liveness", "all"]), help="Refuse attempts whose policy asks for fewer signatures."
)
@click.option("--job", "job_id", type=int, metavar="ID", help="Instead, make the proof of this job from the ledger.")
@click.option("--out", type=click.Path(path_type=Path), help="The file for the proof; else standard output.")
@db_option
@as_json_option
def verify(
    *,
    file: Path | None,
    keys: str | None,
    heads: tuple[Path, ...],
    allow_unsealed: bool,
    no_gone: bool,
    require_signed: "SignedLevel | None",
    job_id: int | None,
    out: Path | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Check an export or one job's proof, offline.

    It checks the tree, its heads, keys, signatures, every step and every row.

    If the file is not intact, it prints the first violation with its place, and the exit code is 1. With --job it makes such a
    proof from a ledger.

    \b
    Example:
      holdfast verify all.jsonl --keys keys.json --head heads.txt
      holdfast verify --job 12 --out job-12.jsonl
    """
    if (file is None) == (job_id is None):
        raise usage_error("name a file to verify, or a job to prove with --job")
    if job_id is not None:
        _prove(job_id, out, db, as_json)
        return
    assert file is not None
    options = verify_options(keys, heads, allow_unsealed, no_gone, require_signed)
    print_result(_verify_result(file, _verify_file(file, options)), as_json)


def _prove(job_id: int, out: Path | None, db: str | None, as_json: bool) -> None:
    if out is None and as_json:
        raise usage_error("--json needs --out: the proof itself is JSON")
    with open_ledger(ledger_url(db), create=False) as ledger, open_output(out) as write:
        made = ledger.prove(job_id, write)
    if out is not None:
        events, keys = pluralize(made.events, "event"), pluralize(made.keys, "change of keys", "changes of keys")
        text = f"The proof of job {job_id} is in {out}: {events}, {keys}."
        print_result(CommandResult({"file": str(out), "job_id": job_id, "lines": made}, lambda page: page.line(text)), as_json)


def _verify_file(file: Path, options: "VerifyOptions") -> "VerificationReport":
    from holdfast.proof.verify import verify_file

    try:
        with file.open("rb") as stream, ProgressLine("lines checked") as progress:
            found = verify_file(stream, options, progress)
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}", action="Name another file.") from None
    if [finding.rule for finding in found.findings] == ["own head"]:
        raise usage_error(found.findings[0].detail, action=found.findings[0].meaning)
    return found


def _verify_result(file: Path, verdict: "VerificationReport") -> CommandResult:
    data = {
        "file": str(file),
        "intact": verdict.intact,
        "kind": verdict.kind,
        "ledger": verdict.ledger,
        "checked": verdict.checked,
        "sealed": verdict.sealed,
        "unsealed": verdict.unsealed,
        "root": verdict.root,
        "found": verdict.found,
        "violations": [_finding_fields(found) for found in verdict.findings],
    }
    return CommandResult(data, lambda page: _show(page, verdict), None if verdict.intact else _not_intact_error(verdict, data))


def _finding_fields(found: "Finding") -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(found), "meaning": found.meaning}


def _not_intact_error(verdict: "VerificationReport", data: dict[str, Any]) -> CommandError:
    first = verdict.findings[0]
    more = f" ({verdict.found - 1:,} more)" if verdict.found > 1 else ""
    return CommandError("not_intact", f"{first.place()}: {first.detail}{more}", action=first.meaning, **data)


def _show(page: Page, verdict: "VerificationReport") -> None:
    checked = verdict.checked
    if verdict.ledger is None:
        return
    page.line(f"{_checked_text(verdict)}.")
    if verdict.root is not None:
        page.line(f"{_newest_head_text(verdict)}; its root is {verdict.root}.")
    if checked.worker_keys and checked.unsigned_attempts:
        were = "was" if checked.unsigned_attempts == 1 else "were"
        page.line(
            f"Of {pluralize(checked.attempts, 'attempt')} {checked.unsigned_attempts:,} {were} claimed under signed=none: "
            "only the server says who did them."
        )
    if checked.deleted:
        leaves, is_one = pluralize(checked.deleted, "leaf", "leaves"), checked.deleted == 1
        left = "is missing: only its hash is left" if is_one else "are missing: only their hashes are left"
        page.line(f"{leaves} {left}. Retention did not do that.")
    if checked.gone > checked.deleted:
        left = pluralize(checked.gone - checked.deleted, "leaf", "leaves")
        page.line(f"Of {left} only the hash is left: retention deleted the contents.")
    if verdict.unsealed and verdict.root is not None:
        newer = "1 is" if verdict.unsealed == 1 else f"{verdict.unsealed:,} are"
        page.line(f"{newer} newer than the newest head: not yet sealed.")
    if verdict.intact:
        page.line("Intact.", bold=True, fg="green")


def _checked_text(verdict: "VerificationReport") -> str:
    checked = verdict.checked
    leaves, jobs = pluralize(checked.leaves, "leaf", "leaves"), pluralize(checked.jobs, "job")
    signatures, keys = pluralize(checked.signatures, "signature"), pluralize(checked.keys, "change of keys", "changes of keys")
    if verdict.kind == "proof":
        proofs = pluralize(checked.leaves, "inclusion proof")
        tree = f"{proofs} in a tree of {pluralize(verdict.sealed, 'leaf', 'leaves')}"
    else:
        tree = f"a tree of {leaves}, {pluralize(checked.heads, 'head')}, {pluralize(checked.anchors, 'older head')}"
    return f"{pluralize(checked.events, 'event')} of {jobs}, {signatures}, {keys}; {tree}"


def _newest_head_text(verdict: "VerificationReport") -> str:
    """Return what the newest head covers. Only in an intact file is it certain that it seals the leaves of the file."""
    leaves, here = pluralize(verdict.sealed, "leaf", "leaves"), verdict.checked.leaves
    if verdict.intact:
        return f"The newest head seals {leaves} of ledger {verdict.ledger}"
    short = f"; {here:,} are here" if verdict.kind == "export" and here < verdict.sealed else ""
    return f"The newest head was signed over {leaves} of ledger {verdict.ledger}{short}"
