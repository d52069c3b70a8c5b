"""What somebody changes in the database itself shows in the next export."""

import io

import pytest

import holdfast
from holdfast.services.seal import Sealer
from holdfast.testing import ManualClock
from holdfast.verify import Finding, Wishes, parse_trusted, verify_file
from tests.contract.builders import claim
from tests.support.sealing import tamper
from tests.support.signers import enrol, opened


def _bytes(url: str, text: str) -> str:
    """A text as bytes, in the words of each store."""
    return f"CAST('{text}' AS BLOB)" if url.startswith("sqlite") else f"convert_to('{text}', 'UTF8')"


@pytest.fixture
def vkey(store_url: str, clock: ManualClock) -> str:
    """Three jobs, one of them done, all sealed; the key to check them with."""
    from holdfast.cli.keys import public_keys

    with opened(store_url, clock) as ledger:
        enrol(ledger)
        for number in range(3):
            ledger.enqueue("plain", {"n": number})
        fence = claim(ledger, 1).fence
        ledger.start(fence)
        ledger.complete(fence, 1)
        with Sealer(ledger) as sealer:
            sealer.seal_all()
        return str(public_keys(ledger)["vkey"])


def _found(url: str, vkey: str) -> list[Finding]:
    with holdfast.open(url) as ledger:
        out = io.BytesIO()
        ledger.export(out.write)
    return verify_file(io.BytesIO(out.getvalue()), Wishes(trusted=parse_trusted(vkey))).findings


def test_nothing_is_wrong_to_begin_with(store_url: str, vkey: str):
    assert _found(store_url, vkey) == []


def test_a_result_that_was_changed(store_url: str, vkey: str):
    changed = _bytes(store_url, '{"result":2}')
    tamper(store_url, f"UPDATE {{events}} SET payload = {changed} WHERE job_id = 1 AND type = 'succeeded'")
    [found] = _found(store_url, vkey)
    assert (found.rule, found.job_id, found.rev, found.event) == ("changed", 1, 4, "succeeded")


def test_an_event_that_was_deleted_is_not_said_to_be_gone_by_itself(store_url: str, vkey: str):
    """Its leaf is still in the tree, so its line is a hash; but its job is there, with a hole."""
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 1 AND type = 'started'")
    found = _found(store_url, vkey)[0]
    assert (found.rule, found.job_id, found.rev) == ("rev", 1, 4)


def test_an_event_that_was_put_in(store_url: str, vkey: str):
    tamper(
        store_url,
        "INSERT INTO {events} (pos, job_id, rev, type, received_at, actor, attempt, to_status)"
        " SELECT 100, job_id, 2, 'discarded', received_at, 'operator:ann', 0, 'queued' FROM {events} WHERE job_id = 2",
    )
    found = _found(store_url, vkey)[0]
    assert (found.rule, found.job_id, found.rev) == ("step", 2, 2)


def test_a_row_that_cannot_be_read_any_more(store_url: str, vkey: str):
    """The others are exported all the same."""
    tamper(store_url, f"UPDATE {{events}} SET payload = {_bytes(store_url, 'no')} WHERE job_id = 2 AND rev = 1")
    found = _found(store_url, vkey)
    assert [(finding.rule, finding.job_id) for finding in found] == [("changed", 2), ("payload", 2), ("fold", 2)]


def test_a_job_without_its_first_event(store_url: str, vkey: str):
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 2")
    assert [(finding.rule, finding.job_id) for finding in _found(store_url, vkey)] == [("fold", 2)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {tiles}",
        "UPDATE {tiles} SET positions = NULL",
        "UPDATE {tiles} SET hashes = substr(hashes, 1, 40) WHERE level = 0",
        "DELETE FROM {heads}",
        "UPDATE {heads} SET note = 'none'",
        "UPDATE {key_log} SET name = 'w-9' WHERE name = 'w-1'",
        "DELETE FROM {key_log}",
    ],
)
def test_what_it_is_proved_with_is_no_better_protected(statement: str, store_url: str, vkey: str):
    """An export never fails; where it is not whole, verifying says so. Without tiles nothing is said to be gone."""
    tamper(store_url, statement)
    found = _found(store_url, vkey)
    assert (found == []) == ("{tiles}" in statement)
