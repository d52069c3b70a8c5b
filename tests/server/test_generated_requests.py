"""Generated requests to every operation of the OpenAPI document, by callers of several roles, to a real server process.

No answer is an error of the server. Each has a documented status, content type and schema. Data that does not fit the document
is refused, and so is a method that it does not have.
"""

import secrets
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.server.routes import ROUTES
from tests.support.generated_requests import KEY, fill, send_generated
from tests.support.served_process import serving
from tests.support.server import Client

SETTINGS = """
[server]
redact = ["*.card"]

[server.limits]
wrong_tokens_max = 1_000_000
rate = 1_000_000
burst = 1_000_000
"""
"""Callers are not slowed down: other tests show those limits."""
SECONDS = 550.0
"""How long one run may take on a busy machine. It takes 10 to 20 s of processor time."""


def check_answers(folder: Path, url: str, role: str, *options: str, seconds: float = SECONDS) -> None:
    (folder / "holdfast.toml").write_text(SETTINGS)
    more: dict[str, Any] = {"act_as": ["*"]} if role == "admin" else {}
    with holdfast.open(url, keys=[KEY]) as ledger:
        fences = fill(ledger)
        token = ledger.new_token(role, "arm-1", **more).text
    with serving(folder, db=url) as server:
        said = send_generated(folder, server.url, token, fences, *options, seconds=seconds)
        assert f"Tested: {len(ROUTES) - 1}" in said, said  # all but the document itself
        assert Client(server.port, token).get("/v1/me").data["role"] == role, "the token is valid to the end"
        assert server.stop() == 0
    assert '"status":5' not in (folder / "log").read_text()


@pytest.mark.timeout(600)
def test_every_answer_is_as_documented(tmp_path: Path, sqlite_url: str) -> None:
    """An admin may call every operation. The long run has every role, on both stores, and generated values."""
    check_answers(tmp_path, sqlite_url, "admin", "--phases", "coverage")


@pytest.mark.torture
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("role", ["admin", "operator", "client", "worker", "reader"])
def test_every_answer_is_as_documented_in_a_long_run(tmp_path: Path, store_url: str, role: str) -> None:
    options = ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "100", "--seed", str(secrets.randbits(32))]
    check_answers(tmp_path, store_url, role, *options, seconds=1_700)
