"""Keys as the command line tells of them: to whoever made one, and to those who check a ledger from outside."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.frame import Answer
from holdfast.cli.values import stamp
from holdfast.core.proof.keys import KeyRole, PublicKey
from holdfast.core.proof.notes import NoteKey, origin_of

if TYPE_CHECKING:
    from holdfast.core.proof.keyfile import KeyFile
    from holdfast.ledger import KeyRecord, Ledger

VERSION = 1
FIELDS = ("key_id", "role", "name", "public", "enrolled_pos", "revoked_pos")


def public_keys(ledger: "Ledger") -> dict[str, Any]:
    """The document that `holdfast verify --keys` takes. `vkey` is what checks the newest heads, None before there is any."""
    found = ledger.keys()
    return {
        "holdfast_keys": VERSION,
        "ledger": ledger.id,
        "vkey": _vkey(ledger.id, found),
        "keys": [{name: getattr(record, name) for name in FIELDS} for record in found],
    }


def _vkey(ledger_id: str, found: "list[KeyRecord]") -> str | None:
    good = [record for record in found if record.role is KeyRole.SERVER and record.revoked_pos is None]
    return NoteKey(origin_of(ledger_id), PublicKey(bytes.fromhex(good[-1].public))).text() if good else None


def written(document: dict[str, Any]) -> str:
    """In ASCII: no name in it can speak to a terminal."""
    return json.dumps(document, ensure_ascii=True).replace("\x7f", "\\u007f")


def told_made(
    made: "KeyFile", file: Path, record: "KeyRecord | None", why_not: str | None, *, revoked: str | None = None
) -> Answer:
    said: dict[str, Any] = {
        "key_id": made.key_id,
        "role": made.role.value,
        "name": made.name,
        "public": made.public.public.hex(),
        "file": str(file),
        "enrolled": record is not None,
        "enrolled_pos": None if record is None else record.enrolled_pos,
        "why_not": why_not,
    }
    shown = [("key", made.key_id), ("public", said["public"]), ("file", file)]
    shown += [("enrolled", f"at position {record.enrolled_pos}" if record is not None else f"no: {why_not}")]
    if revoked is not None:
        said["revoked"] = revoked
        shown += [("revoked", revoked)]
    return Answer(said, lambda page: page.fields(shown))


def standing(record: "KeyRecord") -> str:
    return "good" if record.revoked_at is None else f"revoked {stamp(record.revoked_at)}"


def voucher(record: "KeyRecord", known: "list[KeyRecord]") -> str:
    """Whose key vouched for this one."""
    if record.vouched_by == record.key_id:
        return "itself"
    names = {each.key_id: each.name for each in known}
    return f"{names.get(record.vouched_by, '–')} {record.vouched_by}"


def named(record: "KeyRecord") -> str:
    return f"Key {record.key_id} of {record.role.value} {record.name}"
