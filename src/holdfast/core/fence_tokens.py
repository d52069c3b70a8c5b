"""The token of a fence: a secret, and a mark of the worker that it was issued to.

A server gets fences from callers that it knows by name. By the mark it refuses a fence that another worker was issued, without a
read of the ledger. The ledger compares the whole token, so that a mark cannot be replaced.
"""

import hashlib

from holdfast.core.model import SIGNED_SEPARATOR

MARK_CHARACTERS = 8


def issue_token(drawn: str, worker: str) -> str:
    """Return the token of a claim by `worker`. The end of the random text is replaced by the mark."""
    secret = drawn[:-MARK_CHARACTERS]
    return secret + _mark(secret, worker)


def is_issued_to(worker: str, token: str) -> bool:
    """Return whether a token may have been issued to this worker. Other workers have the same mark once in 2^32."""
    issued = token.partition(SIGNED_SEPARATOR)[0]
    secret, mark = issued[:-MARK_CHARACTERS], issued[-MARK_CHARACTERS:]
    return mark == _mark(secret, worker)


def _mark(secret: str, worker: str) -> str:
    return hashlib.sha256(f"{secret} {worker}".encode(errors="replace")).hexdigest()[:MARK_CHARACTERS]
