"""Signed notes, as C2SP has them: text, a blank line, a line for each signature. Heads of the tree are such notes."""

import re
from hashlib import sha256

import msgspec

from holdfast.core.limits import NAME_BYTES_MAX
from holdfast.errors import LimitExceeded, SignatureInvalid, ValidationError
from holdfast.proof.encoding import from_base64, to_base64
from holdfast.proof.keys import PublicKey, SecretKey, verify
from holdfast.proof.merkle import HASH_BYTES, SIZE_MAX

NOTE_BYTES_MAX = 131_072
"""Room for sixteen signatures of any size somebody else may add."""
SIGNATURES_MAX = 64
ED25519 = b"\x01"
KEY_HASH_BYTES = 4
_DASH = "— "
_UNWRITABLE = re.compile("[\x00-\x09\x0b-\x1f\ud800-\udfff]")
_HEAD = re.compile("([^\n]+)\n(0|[1-9][0-9]{0,18})\n([^\n]+)\n")


class NoteKey(msgspec.Struct, frozen=True):
    """A public key under the name it signs notes with."""

    name: str
    public: PublicKey

    @property
    def hash(self) -> bytes:
        return key_hash(self.name, self.public.public)

    def text(self) -> str:
        """The key as others' tools take it: name+hash+base64."""
        return f"{check_key_name(self.name)}+{self.hash.hex()}+{to_base64(ED25519 + self.public.public)}"


def key_hash(name: str, public: bytes) -> bytes:
    """The hash that a signature's line names its key by."""
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:KEY_HASH_BYTES]


class NoteSignature(msgspec.Struct, frozen=True):
    name: str
    hash: bytes
    signature: bytes


class Note(msgspec.Struct, frozen=True):
    """A text, its last line break included, and who says that they have signed it."""

    text: str
    signatures: tuple[NoteSignature, ...]


def check_key_name(name: str) -> str:
    """`name`, if it may stand in a signature's line: no blanks, no plus, nothing invisible."""
    if not name or "+" in name or not name.isprintable() or any(map(str.isspace, name)):
        raise ValidationError("a note key's name has neither blanks nor plus signs, and at least one character", field="name")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise LimitExceeded(f"a note key's name has at most {NAME_BYTES_MAX} bytes", field="name", limit=NAME_BYTES_MAX)
    return name


def parse_key(text: str) -> NoteKey:
    """The key behind name+hash+base64."""
    name, hash_, body = (*text.split("+", 2), "", "")[:3]
    public = from_base64("key", body)
    if len(text) > NOTE_BYTES_MAX or public[:1] != ED25519:
        raise ValidationError("this is no Ed25519 note key", field="key")
    key = NoteKey(check_key_name(name), PublicKey(public[1:]))
    if key.hash.hex() != hash_:
        raise ValidationError("the note key does not fit its own hash", field="key")
    return key


def sign_line(text: str, name: str, secret: SecretKey) -> str:
    """The line that says that `secret` has signed `text`."""
    signed = NoteKey(check_key_name(name), secret.public_key).hash + secret.sign(text.encode())
    return f"{_DASH}{name} {to_base64(signed)}\n"


def write_note(text: str, *lines: str) -> str:
    return f"{text}\n{''.join(lines)}"


def read_note(note: str) -> Note:
    """The parts of a note; nothing about them is checked but their form."""
    if len(note.encode("utf-8", "replace")) > NOTE_BYTES_MAX:
        raise LimitExceeded(f"a note has at most {NOTE_BYTES_MAX} bytes", field="note", limit=NOTE_BYTES_MAX)
    head, blank, tail = note.rpartition("\n\n")
    *lines, rest = tail.split("\n")
    if not blank or not lines or rest or _UNWRITABLE.search(note):
        raise ValidationError("a note is a text, a blank line, and a line for each signature", field="note")
    if len(lines) > SIGNATURES_MAX:
        raise LimitExceeded(f"a note has at most {SIGNATURES_MAX} signatures", field="note", limit=SIGNATURES_MAX)
    return Note(head + "\n", tuple(map(_signature, lines)))


def verify_note(note: Note, key: NoteKey) -> None:
    """Refuses a note that `key` has not signed, and one with a line of that key's that does not hold."""
    named = key.name, key.hash
    mine = [line.signature for line in note.signatures if (line.name, line.hash) == named]
    if not mine:
        raise SignatureInvalid(f"{key.name} has not signed this note")
    if not all(verify(key.public, note.text.encode(), signature) for signature in mine):
        raise SignatureInvalid(f"a signature of {key.name} does not fit this note")


def _signature(line: str) -> NoteSignature:
    name, _, body = line.removeprefix(_DASH).partition(" ")
    found = from_base64("signature", body)
    if not line.startswith(_DASH) or len(found) <= KEY_HASH_BYTES:
        raise ValidationError("a signature's line is a dash, a name, and what was signed in base64", field="note")
    return NoteSignature(check_key_name(name), found[:KEY_HASH_BYTES], found[KEY_HASH_BYTES:])


class LogHead(msgspec.Struct, frozen=True):
    """What a tree is at one moment: whose it is, how many leaves it has, and its root."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{check_key_name(self.origin)}\n{self.size}\n{to_base64(self.root)}\n"


def origin_of(ledger_id: str) -> str:
    """The origin of a ledger's heads, and the name of the key that signs them."""
    return f"holdfast/{ledger_id}"


def parse_head(text: str) -> LogHead:
    """The head that a note's text states: three lines, no more."""
    found = _HEAD.fullmatch(text)
    if not found or int(found[2]) > SIZE_MAX:
        raise ValidationError("a head is three lines: its origin, its size, and its root in base64", field="head")
    root = from_base64("root", found[3])
    if len(root) != HASH_BYTES:
        raise ValidationError(f"a root has {HASH_BYTES} bytes", field="root")
    return LogHead(check_key_name(found[1]), int(found[2]), root)


def sign_head(head: LogHead, secret: SecretKey) -> str:
    """The note that states `head`, signed under its origin's name."""
    text = head.text()
    return write_note(text, sign_line(text, head.origin, secret))


def open_head(note: str, key: NoteKey) -> LogHead:
    """The head in a note that `key` has signed for the tree of its own name."""
    found = read_note(note)
    verify_note(found, key)
    head = parse_head(found.text)
    if head.origin != key.name:
        raise SignatureInvalid(f"this head is of {head.origin}, not of {key.name}", origin=head.origin)
    return head
