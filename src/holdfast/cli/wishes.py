"""What `holdfast verify` is asked for: the keys and the heads that its options name, read from their files."""

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.envelope import misuse
from holdfast.cli.page import Page
from holdfast.core.limits import VERIFY_ANCHOR_BYTES_MAX, VERIFY_KEYS_BYTES_MAX
from holdfast.core.words import counted
from holdfast.errors import ValidationError
from holdfast.plainfile import read_plain

if TYPE_CHECKING:
    from holdfast.verify import Level, Trusted, Wishes
    from holdfast.verify.tree import SignedHead


def wishes_of(
    keys: str | None, heads: tuple[Path, ...], allow_unsealed: bool, no_gone: bool, require_signed: "Level | None"
) -> "Wishes":
    from holdfast.verify import Wishes

    try:
        trusted = None if keys is None else _trusted(keys)
        anchors = [head for path in heads for head in _anchored(path)]
    except ValidationError as error:
        raise misuse(error.message) from None
    return Wishes(trusted, anchors, allow_unsealed, not no_gone, require_signed or "none")


def _anchored(path: Path) -> "list[SignedHead]":
    from holdfast.verify import read_anchor

    others: list[str] = []
    found = read_anchor(path.name, _text(path, VERIFY_ANCHOR_BYTES_MAX), others.append)
    if others:
        Page().remark(f"{path.name}: {counted(len(others), 'passage')} passed over, as no whole head is there.")
    return found


def _trusted(keys: str) -> "Trusted":
    from holdfast.verify import parse_trusted

    is_key = keys.count("+") > 1 and not Path(keys).exists()
    return parse_trusted(keys if is_key else _text(Path(keys), VERIFY_KEYS_BYTES_MAX))


def _text(path: Path, bytes_max: int) -> str:
    try:
        return read_plain(path, bytes_max, pipes=True).decode()
    except OSError as error:
        raise misuse(f"{path} cannot be read: {error.strerror}", action="Name another file.") from None
    except UnicodeDecodeError:
        raise misuse(f"{path} is no text", action="Name another file.") from None
