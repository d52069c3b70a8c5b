"""Signed notes of C2SP: a text, a blank line, and a line for each signature. Heads of the tree are such notes."""

import re
from hashlib import sha256

import msgspec

from holdfast.core.limits import NAME_BYTES_MAX
from holdfast.errors import LimitExceeded, SignatureInvalid, ValidationError
from holdfast.proof.encoding import from_base64, to_base64
from holdfast.proof.keys import PublicKey, SecretKey, verify
from holdfast.proof.merkle import HASH_BYTES, SIZE_MAX

NOTE_BYTES_MAX = 131_072
"""Enough for sixteen signatures of any size that others may add."""
SIGNATURES_MAX = 64
ED25519 = b"\x01"
KEY_HASH_BYTES = 4
_DASH = "— "
_UNWRITABLE = re.compile("[\x00-\x09\x0b-\x1f\ud800-\udfff]")
_HEAD = re.compile("([^\n]+)\n(0|[1-9][0-9]{0,18})\n([^\n]+)\n")


class NoteKey(msgspec.Struct, frozen=True):
    """A public key, and the name with which it signs notes."""

    name: str
    public: PublicKey

    @property
    def hash(self) -> bytes:
        return key_hash(self.name, self.public.public)

    def text(self) -> str:
        """Return the key in the format of other tools: name+hash+base64."""
        return f"{check_key_name(self.name)}+{self.hash.hex()}+{to_base64(ED25519 + self.public.public)}"


def key_hash(name: str, public: bytes) -> bytes:
    """Return the hash by which a signature line names its key."""
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:KEY_HASH_BYTES]


class NoteSignature(msgspec.Struct, frozen=True):
    name: str
    hash: bytes
    signature: bytes


class Note(msgspec.Struct, frozen=True):
    """A text, including its last line break, and its unchecked signatures."""

    text: str
    signatures: tuple[NoteSignature, ...]


def check_key_name(name: str) -> str:
    """Return `name` if a signature line may contain it: no blanks, no plus, nothing invisible."""
    if not name or "+" in name or not name.isprintable() or any(map(str.isspace, name)):
        raise ValidationError("a note key's name has neither blanks nor plus signs, and at least one character", field="name")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise LimitExceeded(f"a note key's name has at most {NAME_BYTES_MAX} bytes", field="name", limit=NAME_BYTES_MAX)
    return name


def parse_key(text: str) -> NoteKey:
    """Return the key of name+hash+base64."""
    name, hash_, body = (*text.split("+", 2), "", "")[:3]
    public = from_base64("key", body)
    if len(text) > NOTE_BYTES_MAX or public[:1] != ED25519:
        raise ValidationError("this is not an Ed25519 note key", field="key")
    key = NoteKey(check_key_name(name), PublicKey(public[1:]))
    if key.hash.hex() != hash_:
        raise ValidationError("the note key does not fit its own hash", field="key")
    return key


def sign_line(text: str, name: str, secret: SecretKey) -> str:
    """Return the line with the signature of `text` by `secret`."""
    signed = NoteKey(check_key_name(name), secret.public_key).hash + secret.sign(text.encode())
    return f"{_DASH}{name} {to_base64(signed)}\n"


def write_note(text: str, *lines: str) -> str:
    return f"{text}\n{''.join(lines)}"


def read_note(note: str) -> Note:
    """Return the parts of a note. Only their form is checked."""
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
    """Raise SignatureInvalid if `key` has not signed the note, or if any of its signature lines is wrong."""
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
    """The state of a tree: its origin, its number of leaves, and its root."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{check_key_name(self.origin)}\n{self.size}\n{to_base64(self.root)}\n"


def origin_of(ledger_id: str) -> str:
    """Return the origin of a ledger's heads, which is also the name of the key that signs them."""
    return f"holdfast/{ledger_id}"


def parse_head(text: str) -> LogHead:
    """Return the head in a note's text of exactly three lines."""
    found = _HEAD.fullmatch(text)
    if not found or int(found[2]) > SIZE_MAX:
        raise ValidationError("a head is three lines: its origin, its size, and its root in base64", field="head")
    root = from_base64("root", found[3])
    if len(root) != HASH_BYTES:
        raise ValidationError(f"a root has {HASH_BYTES} bytes", field="root")
    return LogHead(check_key_name(found[1]), int(found[2]), root)


def sign_head(head: LogHead, secret: SecretKey) -> str:
    """Return the signed note of `head`. The signer's name is the head's origin."""
    text = head.text()
    return write_note(text, sign_line(text, head.origin, secret))


def open_head(note: str, key: NoteKey) -> LogHead:
    """Return the head in a note that `key` has signed. Its origin must be the key's name."""
    found = read_note(note)
    verify_note(found, key)
    head = parse_head(found.text)
    if head.origin != key.name:
        raise SignatureInvalid(f"this head is of {head.origin}, not of {key.name}", origin=head.origin)
    return head
