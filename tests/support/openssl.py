"""The commands of openssl that the guides use, for machines that have no openssl."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

ROOT = Path(__file__).parents[2]


def openssl_path(folder: Path) -> str:
    """Return a PATH on which there is an openssl: the machine's own, or a script in `folder` that runs this file."""
    path = os.environ["PATH"]
    if shutil.which("openssl") is not None:
        return path
    script = folder / "bin" / "openssl"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.support.openssl "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{path}"


def run(command: str, *arguments: str) -> None:
    """Run a command as openssl does."""
    given = dict(zip(arguments, [*arguments[1:], ""], strict=True))
    out = sys.stdout.buffer
    match command:
        case "genpkey":
            made = Ed25519PrivateKey.generate()
            Path(given["-out"]).write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        case "pkey":
            out.write(_secret(given["-in"]).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        case "pkeyutl":
            out.write(_secret(given["-inkey"]).sign(Path(given["-in"]).read_bytes()))
        case "dgst":
            out.write(f"{hashlib.sha256(sys.stdin.buffer.read()).hexdigest()} *stdin\n".encode())
        case _:
            raise SystemExit(f"openssl {command} is not known here")


def _secret(path: str) -> Ed25519PrivateKey:
    found = load_pem_private_key(Path(path).read_bytes(), None)
    assert isinstance(found, Ed25519PrivateKey)
    return found


if __name__ == "__main__":
    run(*sys.argv[1:])
