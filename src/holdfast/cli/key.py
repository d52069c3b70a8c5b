"""`holdfast key`: make, enrol, list, rotate, revoke and export signing keys."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import (
    CommandResult,
    NounGroup,
    as_json_option,
    db_option,
    key_option,
    load_keys,
    open_ledger,
    print_result,
    report_new_ledger,
    with_existing_ledger,
    with_ledger,
)
from holdfast.cli.config import is_new, ledger_url
from holdfast.cli.output import CommandError, open_output, usage_error
from holdfast.cli.values import format_time
from holdfast.errors import HoldfastError, Unavailable
from holdfast.proof.keys import KeyRole, PublicKey
from holdfast.proof.notes import NoteKey, origin_of

if TYPE_CHECKING:
    from holdfast.ledger import KeyRecord, Ledger
    from holdfast.proof.keys import KeyFile


DOCUMENT_VERSION = 1
PUBLIC_KEY_FIELDS = ("key_id", "role", "name", "public", "enrolled_pos", "revoked_pos")


def public_keys(ledger: "Ledger") -> dict[str, Any]:
    """Return the document for `holdfast verify --keys`. Its `vkey` verifies the newest heads; None if no server key is valid."""
    found = ledger.keys()
    return {
        "holdfast_keys": DOCUMENT_VERSION,
        "ledger": ledger.id,
        "vkey": _vkey(ledger.id, found),
        "keys": [{name: getattr(record, name) for name in PUBLIC_KEY_FIELDS} for record in found],
    }


def _vkey(ledger_id: str, found: "list[KeyRecord]") -> str | None:
    good = [record for record in found if record.role is KeyRole.SERVER and record.revoked_pos is None]
    return NoteKey(origin_of(ledger_id), PublicKey(bytes.fromhex(good[-1].public))).text() if good else None


def encode_document(document: dict[str, Any]) -> str:
    """Return the document as ASCII, so that no name in it can control a terminal."""
    return json.dumps(document, ensure_ascii=True).replace("\x7f", "\\u007f")


def new_key_result(
    made: "KeyFile", file: Path, record: "KeyRecord | None", why_not: str | None, *, revoked: str | None = None
) -> CommandResult:
    data: dict[str, Any] = {
        "key_id": made.key_id,
        "role": made.role.value,
        "name": made.name,
        "public": made.public.public.hex(),
        "file": str(file),
        "enrolled": record is not None,
        "enrolled_pos": None if record is None else record.enrolled_pos,
        "why_not": why_not,
    }
    shown = [("key", made.key_id), ("public", data["public"]), ("file", file)]
    shown += [("enrolled", f"at position {record.enrolled_pos}" if record is not None else f"no: {why_not}")]
    if revoked is not None:
        data["revoked"] = revoked
        shown += [("revoked", revoked)]
    return CommandResult(data, lambda page: page.fields(shown))


def key_state(record: "KeyRecord") -> str:
    return "good" if record.revoked_at is None else f"revoked {format_time(record.revoked_at)}"


def voucher_name(record: "KeyRecord", known: "list[KeyRecord]") -> str:
    """Return the name and id of the key that vouched for this one."""
    if record.vouched_by == record.key_id:
        return "itself"
    names = {each.key_id: each.name for each in known}
    return f"{names.get(record.vouched_by, '–')} {record.vouched_by}"


def key_title(record: "KeyRecord") -> str:
    return f"Key {record.key_id} of {record.role.value} {record.name}"


ROLES = ("worker", "operator", "server")
out_option = click.option("--out", type=click.Path(path_type=Path), help="The file to write. It must not exist yet.")


@click.group(cls=NounGroup)
def key() -> None:
    """Make, enrol, rotate and revoke signing keys.

    \b
    Try:
      holdfast key list
    """


@key.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="The role of the key.")
@out_option
@click.option("--no-enrol", is_flag=True, help="Only make the key. The ledger is not opened.")
@key_option
@db_option
@as_json_option
def new(*, name: str, role: str, out: Path | None, no_enrol: bool, keys: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Make a key in a new file, and enrol it.

    It is enrolled if a loaded key may vouch for it, or if it is the first key.

    The file is NAME.key unless --out names another. If the key cannot be enrolled, the file stays and the exit code is 1.

    \b
    Try:
      holdfast key new main --role server
    """
    from holdfast.composition import draw_key
    from holdfast.files.keys import write_key

    ring, url = load_keys(keys), ledger_url(db)
    made, first = draw_key(role, name), is_new(url)
    file = out or _default_file(name)
    write_key(file, made)
    record, why_not = (None, "--no-enrol was given") if no_enrol else _try_enrol(url, made, ring)
    if first and record is not None and not as_json:
        report_new_ledger(url)
    answer = new_key_result(made, file, record, why_not)
    if record is None and not no_enrol:
        action = f"Then: holdfast key enrol {shlex.quote(str(file))} --key SERVER_OR_OPERATOR.key"
        failed = CommandError(
            "not_enrolled", f"the key is in {file}, and is not enrolled: {why_not}", action=action, **answer.data
        )
        answer = answer._replace(failed=failed)
    print_result(answer, as_json)


def _try_enrol(url: str, made: "KeyFile", ring: "list[KeyFile]") -> "tuple[KeyRecord | None, str | None]":
    """Enrol the key. Return its record, or None and the reason why not: the key can be enrolled later."""
    if is_new(url) and made.role != "server":
        return None, f"there is no ledger at {url}"
    try:
        with open_ledger(url, [*ring, made] if made.role == "server" else ring, create=True) as ledger:
            return ledger.enrol_key(made.public, role=made.role, name=made.name), None
    except HoldfastError as error:
        return None, f"{error.message}. {error.action}".rstrip()


@key.command()
@click.argument("key_or_file", metavar="KEY|FILE")
@click.option("--role", type=click.Choice(ROLES), help="The role of the key, where no file gives it.")
@click.option("--name", help="The name of the key's owner, where no file gives it.")
@with_ledger
def enrol(ledger: "Ledger", *, key_or_file: str, role: str | None, name: str | None) -> CommandResult:
    """Enrol an existing key.

    Give its 64 hex digits with --role and --name, or its file, which has both.

    \b
    Example:
      holdfast key enrol arm-1.key --key main.key
    """
    if (role is None and name is None) or Path(key_or_file).exists():
        from holdfast.files.keys import read_key

        found = read_key(Path(key_or_file))
        if role not in (None, found.role.value) or name not in (None, found.name):
            raise usage_error(
                f"{key_or_file} is a key of {found.role.value} {found.name!r}", action="Leave out --role and --name."
            )
        record = ledger.enrol_key(found.public, role=found.role, name=found.name)
    elif role is not None and name is not None:
        record = ledger.enrol_key(key_or_file, role=role, name=name)
    else:
        raise usage_error("a key without a file needs both --role and --name")
    return CommandResult(
        {"key": record}, lambda page: page.line(f"{key_title(record)} may sign after position {record.enrolled_pos}.")
    )


@key.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List all keys that were ever enrolled, oldest first.

    \b
    Try:
      holdfast key list
    """
    found = ledger.keys()
    rows = [
        (
            record.key_id,
            record.role.value,
            record.name,
            key_state(record),
            format_time(record.enrolled_at),
            record.enrolled_by,
            voucher_name(record, found),
        )
        for record in found
    ]
    heads = ("key", "role", "name", "state", "enrolled", "by", "vouched by")
    return CommandResult({"keys": found}, lambda page: page.listing(heads, rows, "There are no keys."))


@key.command()
@click.argument("which", metavar="NAME|KEY_ID")
@out_option
@with_ledger
def rotate(ledger: "Ledger", *, which: str, out: Path | None) -> CommandResult:
    """Replace a key with a new one.

    The new key has the same role and name. The old one is revoked in the same step.

    The file is NAME-KEY_ID.key, with the new key's id, unless --out names another.

    \b
    Example:
      holdfast key rotate arm-1 --key main.key
    """
    from holdfast.composition import draw_key
    from holdfast.files.keys import write_key

    old = _find_key(ledger.keys(), which)
    made = draw_key(old.role, old.name)
    file = out or _default_file(f"{old.name}-{made.key_id}")
    write_key(file, made)
    try:
        record = ledger.rotate_key(old.key_id, made.public)
    except HoldfastError as error:
        if not (isinstance(error, Unavailable) and error.outcome == "unknown"):
            file.unlink()
        raise
    return new_key_result(made, file, record, None, revoked=old.key_id)


@key.command()
@click.argument("which", metavar="NAME|KEY_ID")
@with_ledger
def revoke(ledger: "Ledger", *, which: str) -> CommandResult:
    """Revoke a key.

    Its new signatures are refused. Its earlier signatures stay valid.

    \b
    Example:
      holdfast key revoke 0123456789abcdef --key main.key
    """
    record = ledger.revoke_key(_find_key(ledger.keys(), which).key_id)
    return CommandResult(
        {"key": record}, lambda page: page.line(f"{key_title(record)} is revoked at position {record.revoked_pos}.")
    )


@key.command()
@click.option("--out", type=click.Path(path_type=Path), help="The file to write. It is replaced if it exists.")
@with_existing_ledger
def export(ledger: "Ledger", *, out: Path | None) -> CommandResult:
    """Export all public keys as one JSON object.

    Verifiers use them to check an export without trusting the ledger.

    \b
    Try:
      holdfast key export --out keys.json
    """
    found = public_keys(ledger)
    if out is None:
        return CommandResult(found, lambda page: page.line(encode_document(found)))
    with open_output(out) as write:
        write(f"{encode_document(found)}\n".encode())
    return CommandResult({"file": str(out), **found}, lambda page: page.line(f"{_counted_keys(len(found['keys']))} in {out}."))


def _counted_keys(count: int) -> str:
    return "1 key is" if count == 1 else f"{count:,} keys are"


def _default_file(stem: str) -> Path:
    """Return STEM.key in the current folder. Raise if that would be a hidden file, an option or in another folder."""
    if Path(stem).name != stem or stem.startswith((".", "-")):
        raise usage_error(f"{stem!r:.80} is not a usable file name", action="Name the file with --out.")
    return Path(f"{stem}.key")


def _find_key(found: "list[KeyRecord]", which: str) -> "KeyRecord":
    """Return the key with this id, else the only valid key with this name, else the only key whose id begins with it."""
    if by_id := [record for record in found if record.key_id == which]:
        return by_id[0]
    good = [record for record in found if record.revoked_pos is None]
    for matches in ([key for key in good if key.name == which], [key for key in found if key.key_id.startswith(which)]):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise usage_error(f"{len(matches)} keys match {which!r:.80}", action="Name one by its id: see `holdfast key list`.")
    raise usage_error(f"no key in use is named {which!r:.80}, and no key id begins with it", action="See `holdfast key list`.")
