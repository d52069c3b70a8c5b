"""Key files on disk. Only their owner may read them, and a key file is never overwritten."""

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import HoldfastError, ValidationError
from holdfast.files.regular import read_regular
from holdfast.ledger.keyring import Keyring
from holdfast.proof.keys import KEY_FILE_BYTES_MAX, KeyFile, decode_key, encode_key

KeySource = str | os.PathLike[str] | KeyFile
"""A key, or the path of its file."""
KEYS_VARIABLE = "HOLDFAST_KEYS"


def keyring(keys: Iterable[KeySource] | None) -> Keyring:
    """Return a keyring of these keys. If `keys` is None, use the files that HOLDFAST_KEYS names."""
    if keys is None:
        keys = [path for path in os.environ.get(KEYS_VARIABLE, "").split(os.pathsep) if path]
    if isinstance(keys, str | bytes | os.PathLike):
        raise ValidationError("keys must be a list of files or keys", field="keys")
    return Keyring([_to_key_file(key) for key in keys])


def _to_key_file(given: KeySource) -> KeyFile:
    if isinstance(given, KeyFile):
        return given
    if isinstance(given, str | os.PathLike):
        return read_key(Path(given))
    raise ValidationError(f"a key is a file or a KeyFile, not {type(given).__name__}", field="keys")


def read_key(path: Path) -> KeyFile:
    """Return the key in a file that only its owner may read. No error message contains anything of the file's contents."""
    try:
        body = read_regular(path, KEY_FILE_BYTES_MAX, forbidden_mode=0o077)
        return decode_key(body.decode())
    except OSError as error:
        raise ValidationError(f"the key file {path} cannot be used: {error.strerror}", field="keys") from None
    except UnicodeDecodeError:
        raise ValidationError(f"the key file {path} is not a text", field="keys") from None
    except HoldfastError as error:
        raise ValidationError(f"the key file {path} cannot be used: {error.message}", field="keys") from None


def write_key(path: Path, key: KeyFile) -> None:
    """Write a key to a new file that only its owner may read, and sync it to disk. Raise ValidationError if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ValidationError(f"{path} exists already: a key is never overwritten", field="out") from None
    except OSError as error:
        raise ValidationError(f"{path} cannot be written: {error.strerror}", field="out") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(encode_key(key))
        file.flush()
        os.fsync(descriptor)
