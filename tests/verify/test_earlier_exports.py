"""Exports that an earlier version has written verify.

The files in `exports` were written before events were stored in batches: `demo` by `holdfast demo --jobs 60` and `holdfast events
export`, the others by ledgers like that of `rich.py`, one on each store, with bulk statements, retries and an agent.
"""

import gzip
import io
from pathlib import Path

import pytest

from holdfast.proof.verify import VerificationReport, VerifyOptions, parse_trusted, read_anchor, verify_file

FOLDER = Path(__file__).parent / "exports"
EXPORTS = {"demo": 245, "rich-sqlite": 344, "rich-postgres": 344}
"""Files, and the leaves of their trees."""


def _body(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes())


def _verified(name: str, body: bytes) -> VerificationReport:
    keys = parse_trusted((FOLDER / f"{name}.keys.json").read_text())
    heads = read_anchor("heads", (FOLDER / f"{name}.heads").read_text())
    return verify_file(io.BytesIO(body), VerifyOptions(trusted=keys, anchors=heads))


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_an_earlier_layout_is_intact(name: str) -> None:
    verdict = _verified(name, _body(name))
    assert verdict.findings == []
    assert verdict.intact
    assert verdict.checked.leaves == verdict.sealed == EXPORTS[name]


@pytest.mark.parametrize("name", EXPORTS)
def test_a_changed_byte_of_it_is_found(name: str) -> None:
    """One bit in the middle of every tenth line, each in a copy of its own."""
    lines = _body(name).splitlines(keepends=True)
    for number in range(0, len(lines), 10):
        line, middle = lines[number], len(lines[number]) // 2
        changed = line[:middle] + bytes([line[middle] ^ 1]) + line[middle + 1 :]
        verdict = _verified(name, b"".join([*lines[:number], changed, *lines[number + 1 :]]))
        assert not verdict.intact, changed
