"""The work that is measured: its names, its sizes and its bodies, the same for Holdfast and for the raw loops."""

from collections.abc import Iterator
from typing import Any

import msgspec

BATCH = 500
LEASES = 1_000
"""Leases renewed in one transaction."""
KIND = "report"
RESULT = {"pages": 12}
RESULT_BODY = b'{"result":' + msgspec.json.encode(RESULT) + b"}"


def batches(count: int, size: int = BATCH) -> Iterator[int]:
    """How many go into each batch."""
    for start in range(0, count, size):
        yield min(size, count - start)


def args(number: int) -> dict[str, Any]:
    return {"customer": number, "path": f"/reports/{number}"}


def enqueued_body(queue: str, number: int) -> bytes:
    """What an `enqueued` event carries for a job with these args."""
    return msgspec.json.encode({"queue": queue, "kind": KIND, "args": args(number)})
