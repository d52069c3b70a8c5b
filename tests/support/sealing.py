"""Sealed ledgers: their keys, the contents of their trees, and ways to tamper with them."""

import hashlib
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg

import holdfast
from holdfast import Ledger
from holdfast.proof.keys import KeyFile
from holdfast.store.sealing import TileRow, unpack_positions
from holdfast.store.session import Session
from tests.support import auditor


def drawn(role: str = "server", name: str = "srv") -> KeyFile:
    return holdfast.draw_key(role, name)


def enrol(ledger: Ledger, key: KeyFile) -> None:
    ledger.enrol_key(key.public, role=key.role, name=key.name)


def hashes(ledger: Ledger) -> list[bytes]:
    """The hashes of all sealed leaves, in order."""
    return [row.hashes[at : at + 32] for row in _tiles(ledger) for at in range(0, len(row.hashes), 32)]


def positions(ledger: Ledger) -> list[int]:
    return [pos for row in _tiles(ledger) for pos in unpack_positions(row.positions or b"")]


def _tiles(ledger: Ledger) -> list[TileRow]:
    def work(session: Session) -> list[TileRow]:
        found: list[TileRow] = []
        while (row := session.tile(0, len(found))) is not None:
            found.append(row)
        return found

    return ledger.sealed_log.read(work)


def expected_leaves(ledger: Ledger) -> list[bytes]:
    """Every leaf, encoded by another JSON encoder from the ledger's public answers."""
    log = ledger.sealed_log
    rows, policies = log.page(0, 1_000_000), log.policies()
    made = [(change.pos, _key_leaf(change)) for change in rows.keys]
    made += [(row[0], _event_leaf(row, policies, rows.epoch_us, log.ledger_id)) for row in rows.events]
    return [json.dumps(leaf, separators=(",", ":"), ensure_ascii=False).encode() for _, leaf in sorted(made)]


def _event_leaf(row: Any, policies: dict[int, str], epoch_us: int, ledger_id: str) -> list[Any]:
    pos, job, rev, kind, received, at, *plain, payload, policy, correlation, trace, key, signature, statement = row
    is_first = kind == "enqueued"
    return [
        "event", 1, pos, job, rev, kind, received + epoch_us, (received if at is None else at) + epoch_us, *plain,
        None if payload is None else hashlib.sha256(payload).hexdigest(),
        None if policy is None else policies[policy], (correlation or f"{ledger_id}-{job}") if is_first else None,
        trace if is_first else None, key, None if signature is None else signature.hex(),
        None if statement is None else hashlib.sha256(statement).hexdigest(),
    ]  # fmt: skip


def _key_leaf(change: Any) -> list[Any]:
    whose = [change.pos, change.change, change.key_id, change.role, change.name, change.public.hex()]
    return ["key", 1, *whose, change.at, change.by, change.signer, change.signature.hex()]


def check_sealed(ledger: Ledger, *keys: KeyFile) -> None:
    """Check that every head is signed by one of `keys` and has the root of all leaves up to it, in order."""
    found, leaves = hashes(ledger), expected_leaves(ledger)
    assert found == [auditor.leaf_hash(leaf) for leaf in leaves]
    heads = ledger.heads()
    assert heads[-1].size == len(found)
    for head in heads:
        stated = (f"holdfast/{ledger.id}", head.size, auditor.root(found[: head.size]))
        assert stated in [_read(head.note, key) for key in keys]


def _read(note: str, key: KeyFile) -> Any:
    try:
        return auditor.read_head(note, key.public.public)
    except AssertionError:
        return None


_COLUMNS = (
    "pos, job_id, rev, type, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload, "
    "policy_id, key_id, signature, statement"
)
_UNPACK = (
    (
        f"INSERT INTO {{event_rows}} ({_COLUMNS}) SELECT {_COLUMNS} FROM {{events}} "
        "WHERE pos NOT IN (SELECT pos FROM {event_rows})"
    ),
    "DELETE FROM {event_batches}",
)
"""Makes a row of each event in a batch."""


def tamper(url: str, statement: str) -> None:
    """Run a statement directly on the database. `{x}` in it is the table x.

    For a statement about `{events}`, each event becomes a row that it can change.
    """
    statements = [statement]
    if "{events}" in statement:
        statements = [*_UNPACK, statement.replace("{events}", "{event_rows}")]
    if url.startswith("sqlite"):
        with apsw.Connection(url.removeprefix("sqlite:///")) as connection:
            connection.set_busy_timeout(10_000)
            for one in statements:
                connection.execute(_named(one, "holdfast_"))
        return
    parts = urlsplit(url)
    [schema] = parse_qs(parts.query)["schema"]
    with psycopg.connect(parts._replace(query="").geturl(), autocommit=True) as connection:
        for one in statements:
            connection.execute(_named(one, f"{schema}.").encode())


def _named(statement: str, prefix: str) -> str:
    for table in ("tiles", "heads", "events", "event_rows", "event_batches", "jobs", "key_log"):
        statement = statement.replace("{" + table + "}", prefix + table)
    return statement
