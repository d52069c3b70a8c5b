"""Who signed the heads, and whether they might."""

import re
from collections.abc import Sequence
from itertools import pairwise

from holdfast.core.proof.book import Enrolment
from holdfast.core.proof.notes import NoteKey, verify_note
from holdfast.errors import HoldfastError, SignatureInvalid, ValidationError
from holdfast.verify.findings import Findings
from holdfast.verify.keys import KeyCheck, may_sign_head
from holdfast.verify.tree import SignedHead, read_head

_NOTE = re.compile("[^\n]+\n[0-9]{1,19}\n[^\n]{1,64}\n\n(?:— [^\n]+\n)+")


def read_anchor(name: str, text: str) -> list[SignedHead]:
    """The heads in a file that a sealer wrote them to, or in one that holds a single note."""
    if not text.endswith("\n"):
        text += "\n"
    found = [read_head(note, 0, name) for note in _NOTE.findall(text)]
    if not found:
        raise ValidationError(f"{name} holds no head", field="head")
    return found


def signer_of(found: SignedHead, origin: str, keys: KeyCheck, pos: int, findings: Findings) -> Enrolment | None:
    """The key that has signed a head whose last leaf is at `pos`, if one has that may."""
    if found.head.origin != origin:
        findings.add(found.line, found.rule, f"{found.title} is of {found.head.origin:.80}, not of {origin:.80}")
        return None
    for key in keys.book:
        if may_sign_head(key, pos):
            try:
                verify_note(found.note, NoteKey(origin, keys.book.public_key(key.key_id)))
            except SignatureInvalid:
                continue
            except HoldfastError as error:
                findings.add(found.line, found.rule, f"{found.title} cannot be checked: {error.message}")
                return None
            return key
    findings.add(found.line, found.rule, f"{found.title} is not signed by a server's key that was good there")
    return None


def check_ascending(heads: Sequence[SignedHead], findings: Findings) -> None:
    """A file tells of its heads by size, of each once."""
    for before, found in pairwise(heads):
        if found.head.size <= before.head.size:
            findings.add(found.line, "order", f"{found.title} follows the one of {before.head.size}")
