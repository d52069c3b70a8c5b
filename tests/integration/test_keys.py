"""Keys that change while others rely on them: a revocation has one position in the order, the same for every process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg

import holdfast
from holdfast import Ledger
from holdfast.core.model import EventRecord
from holdfast.proof.key_book import check_key_changes
from holdfast.store.events import EventFilter
from holdfast.store.session import Session
from tests.support.waiting import wait_until

SERVER = holdfast.draw_key("server", "main")
WORKER = holdfast.draw_key("worker", "arm-1")


def waiting(postgres_url: str) -> bool:
    """Whether a session of the server waits for a lock of the ledger."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
        return found is not None and found[0] > 0


def test_a_revocation_waits_for_transactions_that_use_the_key(store_url: str, postgres_url: str) -> None:
    """On SQLite the write lock excludes all others."""
    relied, go_on = threading.Event(), threading.Event()

    with holdfast.open(store_url, keys=[SERVER]) as ledger, holdfast.open(store_url) as other, ThreadPoolExecutor(2) as pool:
        ledger.enrol_key(SERVER.public, role="server", name="main")
        ledger.enrol_key(WORKER.public, role="worker", name="arm-1")
        job = ledger.enqueue("report")

        def rely(session: Session) -> tuple[bool, int]:
            book = other._books.current(session)
            relied.set()
            assert go_on.wait(30)
            good = book.valid(WORKER.key_id, "worker", "arm-1")
            return good, _add_event(session, job.id)

        relying = pool.submit(other._pipeline.transact, rely)
        assert relied.wait(30)
        revoking = pool.submit(ledger.revoke_key, WORKER.key_id)
        if store_url.startswith("postgresql"):
            wait_until(lambda: waiting(postgres_url))
        assert not revoking.done()
        go_on.set()
        good, pos = relying.result(30)
        revoked = revoking.result(30)
        assert good and revoked.revoked_pos is not None
        assert revoked.enrolled_pos < pos < revoked.revoked_pos
        assert not other._pipeline.transact(other._books.current).valid(WORKER.key_id, "worker", "arm-1")


def _add_event(session: Session, job_id: int) -> int:
    """Write an event and return its position."""
    record = session.load([job_id], lock=True)[job_id]
    [event] = session.events(EventFilter(job_id=job_id))
    again = EventRecord(job_id, 2, event.type, event.received_at, event.actor, 0, event.to_status, event.to_status)
    session.save(record, [again])
    return session.events(EventFilter(job_id=job_id))[-1].pos


def test_concurrent_enrolments_form_one_chain(store_url: str) -> None:
    together = threading.Barrier(8)

    with holdfast.open(store_url, keys=[SERVER]) as first:
        first.enrol_key(SERVER.public, role="server", name="main")
    ledgers = [holdfast.open(store_url, keys=[SERVER]) for _ in range(8)]

    def enrol(ledger: Ledger) -> None:
        """Enrol a key of this process, and one that all processes enrol."""
        together.wait(30)
        ledger.enrol_key(holdfast.draw_key("worker", "own").public, role="worker", name="own")
        ledger.enrol_key(WORKER.public, role="worker", name="arm-1")

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(enrol, ledgers))
        changes = ledgers[0]._store.read(lambda session: session.key_log())
        assert len(changes) == 1 + 8 + 1
        assert check_key_changes(ledgers[0].id, changes) == []
    finally:
        for ledger in ledgers:
            ledger.close()
