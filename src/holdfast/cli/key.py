"""`holdfast key`: who may sign."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.address import is_new, ledger_url
from holdfast.cli.envelope import Failed, misuse
from holdfast.cli.frame import (
    Answer,
    Noun,
    as_json_option,
    asks_a_ledger,
    db_option,
    key_option,
    loaded_keys,
    open_ledger,
    reads_a_ledger,
    remark_new,
    say,
)
from holdfast.cli.keys import named, public_keys, standing, told_made, voucher, written
from holdfast.cli.page import Page
from holdfast.cli.values import stamp
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from holdfast.core.proof.keyfile import KeyFile
    from holdfast.ledger import KeyRecord, Ledger

ROLES = ("worker", "operator", "server")
out_option = click.option("--out", type=click.Path(path_type=Path), help="The file to write. It must not exist yet.")


@click.group(cls=Noun)
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

    The file is NAME.key unless --out names another. It is there even where the key could not be enrolled: that ends with 1.

    \b
    Try:
      holdfast key new main --role server
    """
    from holdfast.keyfiles import write_key
    from holdfast.opening import draw_key

    ring, url = loaded_keys(keys), ledger_url(db)
    made, first = draw_key(role, name), is_new(url)
    file = out or _default_file(name)
    write_key(file, made)
    record, why_not = (None, "nobody was asked") if no_enrol else _enrolled(url, made, ring)
    if first and record is not None and not as_json:
        remark_new(url)
    answer = told_made(made, file, record, why_not)
    if record is None and not no_enrol:
        action = f"Then: holdfast key enrol {shlex.quote(str(file))} --key SERVER_OR_OPERATOR.key"
        failed = Failed("not_enrolled", f"the key is in {file}, and is not enrolled: {why_not}", action=action, **answer.data)
        answer = answer._replace(failed=failed)
    say(answer, as_json)


def _enrolled(url: str, made: "KeyFile", ring: "list[KeyFile]") -> "tuple[KeyRecord | None, str | None]":
    """What the ledger says to the key. Whatever it is, the key is there, and can be enrolled later."""
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
@asks_a_ledger
def enrol(ledger: "Ledger", *, key_or_file: str, role: str | None, name: str | None) -> Answer:
    """Enrol an existing key.

    Give its 64 hex digits with --role and --name, or its file, which has both.

    \b
    Example:
      holdfast key enrol arm-1.key --key main.key
    """
    if (role is None and name is None) or Path(key_or_file).exists():
        from holdfast.keyfiles import read_key

        found = read_key(Path(key_or_file))
        if role not in (None, found.role.value) or name not in (None, found.name):
            raise misuse(f"{key_or_file} is a key of {found.role.value} {found.name!r}", action="Leave out --role and --name.")
        record = ledger.enrol_key(found.public, role=found.role, name=found.name)
    elif role is not None and name is not None:
        record = ledger.enrol_key(key_or_file, role=role, name=name)
    else:
        raise misuse("a key without a file needs both --role and --name")
    return Answer({"key": record}, lambda page: page.line(f"{named(record)} may sign after position {record.enrolled_pos}."))


@key.command("list")
@reads_a_ledger
def list_(ledger: "Ledger") -> Answer:
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
            standing(record),
            stamp(record.enrolled_at),
            record.enrolled_by,
            voucher(record, found),
        )
        for record in found
    ]

    def show(page: Page) -> None:
        if rows:
            page.table(("key", "role", "name", "state", "enrolled", "by", "vouched by"), rows)
        else:
            page.line("There are no keys.")

    return Answer({"keys": found}, show)


@key.command()
@click.argument("which", metavar="NAME|KEY_ID")
@out_option
@asks_a_ledger
def rotate(ledger: "Ledger", *, which: str, out: Path | None) -> Answer:
    """Replace a key with a new one.

    The new key has the same role and name. The old one is revoked in the same step.

    The file is NAME-KEY_ID.key, with the new key's id, unless --out names another.

    \b
    Example:
      holdfast key rotate arm-1 --key main.key
    """
    from holdfast.keyfiles import write_key
    from holdfast.opening import draw_key

    old = _chosen(ledger.keys(), which)
    made = draw_key(old.role, old.name)
    file = out or _default_file(f"{old.name}-{made.key_id}")
    write_key(file, made)
    try:
        record = ledger.rotate_key(old.key_id, made.public)
    except HoldfastError as error:
        if not (isinstance(error, Unavailable) and error.outcome == "unknown"):
            file.unlink()
        raise
    return told_made(made, file, record, None, revoked=old.key_id)


@key.command()
@click.argument("which", metavar="NAME|KEY_ID")
@asks_a_ledger
def revoke(ledger: "Ledger", *, which: str) -> Answer:
    """Revoke a key.

    What it signs from now on is refused. What it signed before stays valid.

    \b
    Example:
      holdfast key revoke 0123456789abcdef --key main.key
    """
    record = ledger.revoke_key(_chosen(ledger.keys(), which).key_id)
    return Answer({"key": record}, lambda page: page.line(f"{named(record)} is revoked at position {record.revoked_pos}."))


@key.command()
@click.option("--out", type=click.Path(path_type=Path), help="The file to write. It is replaced if it exists.")
@reads_a_ledger
def export(ledger: "Ledger", *, out: Path | None) -> Answer:
    """Export all public keys as one JSON object.

    Verifiers use them to check an export without trusting the ledger.

    \b
    Try:
      holdfast key export --out keys.json
    """
    found = public_keys(ledger)
    if out is None:
        return Answer(found, lambda page: page.line(written(found)))
    try:
        out.write_text(written(found) + "\n", encoding="utf-8")
    except OSError as error:
        raise misuse(f"{out} cannot be written: {error.strerror}", action="Name another file.") from None
    return Answer({"file": str(out), **found}, lambda page: page.line(f"{_keys(len(found['keys']))} in {out}."))


def _keys(count: int) -> str:
    return "1 key is" if count == 1 else f"{count:,} keys are"


def _default_file(stem: str) -> Path:
    """In this folder. What would be elsewhere, or hidden, must be asked for by name."""
    if Path(stem).name != stem or stem.startswith((".", "-")):
        raise misuse(f"{stem!r:.80} does not make a file's name", action="Name the file with --out.")
    return Path(f"{stem}.key")


def _chosen(found: "list[KeyRecord]", which: str) -> "KeyRecord":
    """The key of this id, else the only good one of this name, else the only one whose id begins so."""
    if by_id := [record for record in found if record.key_id == which]:
        return by_id[0]
    good = [record for record in found if record.revoked_pos is None]
    for fitting in ([key for key in good if key.name == which], [key for key in found if key.key_id.startswith(which)]):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise misuse(f"{len(fitting)} keys fit {which!r:.80}", action="Name one by its id: see `holdfast key list`.")
    raise misuse(f"no key in use is named {which!r:.80}, and no key's id begins so", action="See `holdfast key list`.")
