"""A change of the database itself is visible in the next export."""

import io
from urllib.parse import parse_qs, urlsplit

import pytest

import holdfast
from holdfast.proof.verify import Finding, VerificationReport, VerifyOptions, parse_trusted, verify_file
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.contract.builders import claim
from tests.support.sealing import tamper
from tests.support.signers import enrol, opened


def _bytes(url: str, text: str) -> str:
    """A text as bytes in the SQL of each store."""
    return f"CAST('{text}' AS BLOB)" if url.startswith("sqlite") else f"convert_to('{text}', 'UTF8')"


@pytest.fixture
def vkey(store_url: str, clock: ManualClock) -> str:
    """Seal three jobs, one of them succeeded, and return the key to verify them with."""
    from holdfast.cli.key import public_keys

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


def _jobs(url: str) -> str:
    """The table of jobs in the SQL of each store."""
    return "holdfast_jobs" if url.startswith("sqlite") else f"{parse_qs(urlsplit(url).query)['schema'][0]}.jobs"


def _found(url: str, vkey: str) -> list[Finding]:
    return _verdict(url, vkey).findings


def _verdict(url: str, vkey: str) -> VerificationReport:
    with holdfast.open(url) as ledger:
        out = io.BytesIO()
        ledger.export(out.write)
    return verify_file(io.BytesIO(out.getvalue()), VerifyOptions(trusted=parse_trusted(vkey)))


def test_the_unchanged_ledger_has_no_findings(store_url: str, vkey: str):
    assert _found(store_url, vkey) == []


def test_a_changed_result_is_found(store_url: str, vkey: str):
    changed = _bytes(store_url, '{"result":2}')
    tamper(store_url, f"UPDATE {{jobs}} SET result = {changed} WHERE id = 1")
    [found] = _found(store_url, vkey)
    assert (found.rule, found.job_id, found.rev, found.event) == ("changed", 1, 4, "succeeded")


@pytest.mark.parametrize(
    ("job_id", "rev", "detail"),
    [
        (2, 1, "the job has no first event: it was deleted"),
        (1, 1, "the job has no first event: it was deleted"),
        (1, 3, "it was deleted after it was sealed"),
        (1, 4, "it was deleted after it was sealed"),
    ],
)
def test_an_event_that_was_deleted_is_named(store_url: str, vkey: str, job_id: int, rev: int, detail: str):
    with holdfast.open(store_url) as ledger:
        pos = ledger.events(job_id)[rev - 1].pos
    tamper(store_url, f"DELETE FROM {{events}} WHERE job_id = {job_id} AND rev = {rev}")
    verdict = _verdict(store_url, vkey)
    found = verdict.findings[0]
    assert (found.rule, found.job_id, found.rev, found.pos) == ("deleted", job_id, rev, pos)
    assert found.detail.startswith(detail) and found.place().startswith(f"job {job_id}, event {rev}, line ")
    assert (verdict.checked.gone, verdict.checked.deleted) == (1, 1)


def test_a_deleted_row_with_one_event_looks_like_retention(store_url: str, vkey: str):
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 2")
    tamper(store_url, f"DELETE FROM {_jobs(store_url)} WHERE id = 2")
    verdict = _verdict(store_url, vkey)
    assert verdict.intact and (verdict.checked.gone, verdict.checked.deleted) == (1, 0)


def test_deleted_events_are_distinguished_from_retention(store_url: str, vkey: str):
    """Job 2 is deleted completely, and job 1 without its claim and start: two of the three hashes are of deleted events."""
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 2 OR (job_id = 1 AND rev IN (2, 3))")
    tamper(store_url, f"DELETE FROM {_jobs(store_url)} WHERE id = 2")
    verdict = _verdict(store_url, vkey)
    assert [(found.job_id, found.rev) for found in verdict.findings if found.rule == "deleted"] == [(1, 2), (1, 3)]
    assert (verdict.checked.gone, verdict.checked.deleted) == (3, 2)
    assert all("one of several" in found.detail for found in verdict.findings[:2])


def test_a_changed_rev_is_not_reported_as_a_missing_event(store_url: str, vkey: str):
    """Also if retention has deleted another job."""
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 3")
    tamper(store_url, f"DELETE FROM {_jobs(store_url)} WHERE id = 3")
    tamper(store_url, f"UPDATE {_jobs(store_url)} SET rev = rev + 1 WHERE id = 2")
    [found] = _found(store_url, vkey)
    assert (found.rule, found.detail) == ("fold", "rev in its row is 2, its events say 1")


@pytest.mark.parametrize("where", ["job_id = 1 AND rev = 4", "job_id = 1 AND rev = 3", "job_id = 2"])
def test_a_sealed_event_that_was_moved_is_missing_at_its_position(store_url: str, vkey: str, where: str):
    tamper(store_url, f"UPDATE {{events}} SET pos = pos + {10**6} WHERE {where}")
    verdict = _verdict(store_url, vkey)
    found, pos = verdict.findings[0], verdict.findings[0].pos
    assert (found.rule, found.job_id) == ("changed", int(where[9])) and pos is not None and pos > 10**6
    assert found.detail == f"the sealed event at position {pos - 10**6} is missing there: it was moved to position {pos}"
    assert "deleted" not in {other.rule for other in verdict.findings} and verdict.checked.deleted == 1
    assert "unsealed" in {other.rule for other in verdict.findings}


def test_an_unknown_type_is_reported_with_job_and_event(store_url: str, vkey: str):
    tamper(store_url, "UPDATE {events} SET type = 'nosuch' WHERE job_id = 1 AND rev = 3")
    found = _found(store_url, vkey)[0]
    assert (found.rule, found.job_id, found.rev, found.event) == ("value", 1, 3, "nosuch")
    assert found.detail == "the event cannot be read: its type is nosuch, which Holdfast does not write there"


@pytest.mark.parametrize(
    ("change", "job_id", "detail"),
    [
        ("result = payload", 1, "result or checkpoint_rev in its row cannot be read"),
        ("checkpoint_rev = 1", 2, "checkpoint_rev in its row names an event of another type"),
        ("policy_id = 99", 2, "policy_id in its row is 99, and there is no such policy"),
        ("phase = 'nosuch'", 2, "phase in its row is nosuch, and there is no such phase"),
    ],
)
def test_a_row_that_does_not_fit_is_reported_with_its_field(store_url: str, vkey: str, change: str, job_id: int, detail: str):
    tamper(store_url, "UPDATE {events} SET pos = pos")
    tamper(store_url, f"UPDATE {_jobs(store_url)} SET {change} WHERE id = {job_id}")
    [found] = _found(store_url, vkey)
    assert (found.rule, found.job_id, found.detail) == ("fold", job_id, f"its row does not fit its history: {detail}")


def test_an_inserted_event_is_found(store_url: str, vkey: str):
    tamper(
        store_url,
        "INSERT INTO {events} (pos, job_id, rev, type, received_at, actor, attempt, to_status)"
        " SELECT 1000000, job_id, 2, 'discarded', received_at, 'operator:ann', 0, 'queued' FROM {events} WHERE job_id = 2",
    )
    found = _found(store_url, vkey)[0]
    assert (found.rule, found.job_id, found.rev) == ("step", 2, 2)


def test_an_unreadable_row_is_found(store_url: str, vkey: str):
    """The other rows are still exported."""
    tamper(store_url, f"UPDATE {{jobs}} SET payload = {_bytes(store_url, 'no')} WHERE id = 2")
    found = _found(store_url, vkey)
    assert [(finding.rule, finding.job_id) for finding in found] == [("changed", 2), ("payload", 2), ("fold", 2)]
    assert found[2].detail == "its row does not fit its history: the payload of its event 1 cannot be read"


def test_a_job_without_its_events_is_found(store_url: str, vkey: str):
    tamper(store_url, "DELETE FROM {events} WHERE job_id = 1")
    [found] = _found(store_url, vkey)
    assert (found.rule, found.job_id, found.rev) == ("deleted", 1, None)
    assert found.detail == "the job has no first event: it was deleted, and the job has no other events"


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
def test_a_change_of_heads_or_keys_is_found(statement: str, store_url: str, vkey: str):
    """An export never fails; verification reports missing parts. Without tiles nothing is exported as gone."""
    tamper(store_url, statement)
    found = _found(store_url, vkey)
    assert (found == []) == ("{tiles}" in statement)
