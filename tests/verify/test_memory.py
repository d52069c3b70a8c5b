"""Exports and their verification are done line by line."""

import io
import tracemalloc
from collections.abc import Callable

import pytest

import holdfast
from holdfast.proof.verify import VerifyOptions, parse_trusted, verify_file
from holdfast.services.sealer import Sealer
from tests.support.signers import enrol, opened

JOBS = 1_000
EXPORT_BYTES_MAX = 6 * 1024 * 1024
BYTES_A_JOB_MAX = 3_000
"""The memory for a finished job and its four leaves until its row is read."""


@pytest.fixture
def sealed(store_url: str, clock: object) -> str:
    """Succeeded jobs with large payloads."""
    with opened(store_url, clock) as ledger:
        enrol(ledger)
        ledger.enqueue_many([{"kind": "plain", "queue": "q", "args": {"pad": "x" * 2_000}}] * JOBS)
        while held := ledger.claim("w-1", ["q"], limit=500, start=True):
            ledger.complete_many([(job.fence, {"pad": "y" * 2_000}) for job in held])
        with Sealer(ledger) as sealer:
            sealer.seal_all()
    return store_url


def _peak(work: Callable[[], object]) -> int:
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_record(sealed: str):
    from holdfast.cli.key import public_keys

    with holdfast.open(sealed) as ledger:
        assert _peak(lambda: ledger.export(len)) < EXPORT_BYTES_MAX
        out = io.BytesIO()
        ledger.export(out.write)
        trusted = parse_trusted(str(public_keys(ledger)["vkey"]))
    assert len(out.getvalue()) > JOBS * 8_000
    file = io.BytesIO(out.getvalue())

    def verified() -> None:
        file.seek(0)
        assert verify_file(file, VerifyOptions(trusted=trusted)).intact

    assert _peak(verified) < JOBS * BYTES_A_JOB_MAX
