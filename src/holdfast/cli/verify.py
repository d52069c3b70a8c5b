"""`holdfast verify`: whether a record is what was sealed, from a file and the public keys alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.address import ledger_url
from holdfast.cli.envelope import Failed, misuse
from holdfast.cli.frame import Answer, as_json_option, db_option, open_ledger, say
from holdfast.cli.page import Page
from holdfast.cli.wishes import wishes_of
from holdfast.core.words import counted

if TYPE_CHECKING:
    from holdfast.verify import Finding, Level, Verdict, Wishes


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--keys", "keys", metavar="FILE|KEY", help="Trusted keys: a file of `key export`, or a note key (name+hash+…).")
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Older heads that it must agree with; may be repeated.",
)
@click.option("--allow-unsealed", is_flag=True, help="Accept events that are newer than the newest head.")
@click.option("--no-gone", is_flag=True, help="Refuse events of which retention has left only the hash.")
@click.option(
    "--require-signed", type=click.Choice(["liveness", "all"]), help="Refuse attempts whose policy asks for fewer signatures."
)
@click.option("--job", "job_id", type=int, metavar="ID", help="Make the proof of this job from the ledger, instead.")
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
    require_signed: "Level | None",
    job_id: int | None,
    out: Path | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Check an export or one job's proof, offline.

    It checks the tree, its heads, keys, signatures, every step and every row.

    With --job it asks a ledger for such a proof. A file is intact or it is not: then the first thing that is wrong is told with
    its place, and the exit code is 1.

    \b
    Example:
      holdfast verify all.jsonl --keys keys.json --head heads.txt
      holdfast verify --job 12 --out job-12.jsonl
    """
    if (file is None) == (job_id is None):
        raise misuse("name a file to verify, or a job to prove with --job")
    if job_id is not None:
        _prove(job_id, out, db, as_json)
        return
    assert file is not None
    wishes = wishes_of(keys, heads, allow_unsealed, no_gone, require_signed)
    say(_told(file, _verified(file, wishes)), as_json)


def _prove(job_id: int, out: Path | None, db: str | None, as_json: bool) -> None:
    from holdfast.cli.writing import written_to

    if out is None and as_json:
        raise misuse("--json needs --out: the proof itself is JSON")
    with open_ledger(ledger_url(db), create=False) as ledger, written_to(out) as write:
        made = ledger.prove(job_id, write)
    if out is not None:
        events, keys = counted(made.events, "event"), counted(made.keys, "change of keys", "changes of keys")
        text = f"The proof of job {job_id} is in {out}: {events}, {keys}."
        say(Answer({"file": str(out), "job_id": job_id, "lines": made}, lambda page: page.line(text)), as_json)


def _verified(file: Path, wishes: "Wishes") -> "Verdict":
    from holdfast.cli.progress import Progress
    from holdfast.verify import verify_file

    try:
        with file.open("rb") as stream, Progress("lines checked") as progress:
            found = verify_file(stream, wishes, progress)
    except OSError as error:
        raise misuse(f"{file} cannot be read: {error.strerror}", action="Name another file.") from None
    if [finding.rule for finding in found.findings] in (["own head"], ["dialect"]):
        raise misuse(found.findings[0].detail, action=found.findings[0].meaning)
    return found


def _told(file: Path, verdict: "Verdict") -> Answer:
    told = {
        "file": str(file),
        "intact": verdict.intact,
        "kind": verdict.kind,
        "ledger": verdict.ledger,
        "checked": verdict.checked,
        "sealed": verdict.sealed,
        "unsealed": verdict.unsealed,
        "root": verdict.root,
        "found": verdict.found,
        "violations": [_finding(found) for found in verdict.findings],
    }
    return Answer(told, lambda page: _show(page, verdict), None if verdict.intact else _failed(verdict, told))


def _finding(found: "Finding") -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(found), "meaning": found.meaning}


def _failed(verdict: "Verdict", told: dict[str, Any]) -> Failed:
    first = verdict.findings[0]
    more = f" ({verdict.found - 1:,} more)" if verdict.found > 1 else ""
    return Failed("not_intact", f"{first.place()}: {first.detail}{more}", action=first.meaning, **told)


def _show(page: Page, verdict: "Verdict") -> None:
    checked = verdict.checked
    if verdict.ledger is None:
        return
    page.line(f"{_looked_at(verdict)}.")
    if verdict.root is not None:
        page.line(f"{_newest(verdict)}; its root is {verdict.root}.")
    if checked.worker_keys and checked.unsigned_attempts:
        were = "was" if checked.unsigned_attempts == 1 else "were"
        page.line(
            f"Of {counted(checked.attempts, 'attempt')} {checked.unsigned_attempts:,} {were} claimed under signed=none: "
            "who did them is the server's word only."
        )
    if checked.deleted:
        leaves, is_one = counted(checked.deleted, "leaf", "leaves"), checked.deleted == 1
        left = "is missing: only its hash is left" if is_one else "are missing: only their hashes are left"
        page.line(f"{leaves} {left}. Retention did not do that.")
    if checked.gone > checked.deleted:
        left = counted(checked.gone - checked.deleted, "leaf", "leaves")
        page.line(f"Of {left} only the hash is left: retention took what they were.")
    if verdict.unsealed and verdict.root is not None:
        newer = "1 is" if verdict.unsealed == 1 else f"{verdict.unsealed:,} are"
        page.line(f"{newer} newer than the newest head: not yet sealed.")
    if verdict.intact:
        page.line("Intact.", bold=True, fg="green")


def _looked_at(verdict: "Verdict") -> str:
    checked = verdict.checked
    leaves, jobs = counted(checked.leaves, "leaf", "leaves"), counted(checked.jobs, "job")
    signatures, keys = counted(checked.signatures, "signature"), counted(checked.keys, "change of keys", "changes of keys")
    if verdict.kind == "proof":
        proofs = counted(checked.leaves, "proof of a place", "proofs of a place")
        tree = f"{proofs} in a tree of {counted(verdict.sealed, 'leaf', 'leaves')}"
    else:
        tree = f"a tree of {leaves}, {counted(checked.heads, 'head')}, {counted(checked.anchors, 'older head')}"
    return f"{counted(checked.events, 'event')} of {jobs}, {signatures}, {keys}; {tree}"


def _newest(verdict: "Verdict") -> str:
    """What the newest head says of itself: only of a file that is intact that it does seal what is here."""
    leaves, here = counted(verdict.sealed, "leaf", "leaves"), verdict.checked.leaves
    if verdict.intact:
        return f"The newest head seals {leaves} of ledger {verdict.ledger}"
    short = f"; {here:,} are here" if verdict.kind == "export" and here < verdict.sealed else ""
    return f"The newest head was signed over {leaves} of ledger {verdict.ledger}{short}"
