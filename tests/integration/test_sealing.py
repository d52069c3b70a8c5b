"""Sealing with real threads, processes and signals: in order, once each, also if sealers stop or are killed."""

import threading
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.errors import SealBroken
from holdfast.files.keys import write_key
from holdfast.ledger.verbs.proofs import SealedLog
from holdfast.proof.keys import KeyFile
from holdfast.services.anchors import FileAnchor
from holdfast.services.sealer import Sealer
from tests.integration.conftest import Opener
from tests.support.processes import Program
from tests.support.sealing import check_sealed, drawn, enrol, positions, tamper
from tests.support.waiting import wait_until

SERVER = drawn()
WRITERS, JOBS = 4, 60


@pytest.fixture
def ledger(store_url: str, opened: Opener) -> Ledger:
    ledger = opened(store_url, keys=[SERVER])
    enrol(ledger, SERVER)
    return ledger


def work(ledger: Ledger, queue: str) -> None:
    for number in range(JOBS):
        ledger.enqueue("index", {"n": number}, queue=queue)
        [job] = ledger.claim("w", [queue], start=True)
        ledger.complete(job.fence, number)


def behind(log: SealedLog, ledger: Ledger) -> int:
    head = ledger.head()
    return log.events_after(0 if head is None else head.pos)


def test_events_of_many_writers_are_sealed_once_and_in_order(store_url: str, ledger: Ledger, opened: Opener):
    stop = threading.Event()
    sealer = Sealer(opened(store_url, keys=[SERVER]), every="50ms", every_events=10)
    sealing = threading.Thread(target=sealer.run, args=(stop,))
    writers = [threading.Thread(target=work, args=(opened(store_url), f"q-{n}")) for n in range(WRITERS)]
    for thread in (sealing, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    wait_until(lambda: behind(ledger.sealed_log, ledger) == 0)
    stop.set()
    sealing.join()
    check_sealed(ledger, SERVER)
    assert positions(ledger) == sorted(set(positions(ledger)))
    assert len(positions(ledger)) == 1 + WRITERS * JOBS * 4
    assert len(ledger.heads()) > 1


def test_a_notification_wakes_a_sealer_and_another_takes_over_from_one_that_stops(store_url: str, ledger: Ledger, opened: Opener):
    for _ in range(2):
        stop = threading.Event()
        sealer = Sealer(opened(store_url, keys=[SERVER]), every="50ms")
        sealing = threading.Thread(target=sealer.run, args=(stop,))
        sealing.start()
        for _ in range(3):
            ledger.enqueue("index")
            wait_until(lambda: behind(ledger.sealed_log, ledger) == 0)
        stop.set()
        sealing.join()
    check_sealed(ledger, SERVER)


def test_a_running_sealer_anchors_and_anchors_the_last_head_when_it_stops(ledger: Ledger, tmp_path: Path):
    file, stop = tmp_path / "heads.txt", threading.Event()
    sealer = Sealer(ledger, every="50ms", anchors=[FileAnchor(file)])
    sealing = threading.Thread(target=sealer.run, args=(stop,))
    sealing.start()
    wait_until(file.exists)
    ledger.enqueue("index")
    wait_until(lambda: behind(ledger.sealed_log, ledger) == 0)
    stop.set()
    sealing.join()
    head = ledger.head()
    assert head is not None
    assert file.read_text().endswith(head.note + "\n")


def test_another_sealer_continues_the_tree_of_a_killed_sealer(store_url: str, ledger: Ledger, tmp_path: Path):
    file = _written(tmp_path, SERVER)
    said = 0
    for _ in range(4):
        ledger.enqueue_many([{"kind": "index"}] * 2_000)
        with Program("sealing", store_url, file) as sealer:
            for _ in range(5):
                said = int(sealer.line())
            said = max([said, *map(int, sealer.kill())])
        head = ledger.head()
        assert head is not None
        assert head.size >= said, "what it said it had sealed is sealed"
    with Sealer(ledger) as last:
        last.seal_all()
    check_sealed(ledger, SERVER)


def test_two_processes_that_seal_at_once_never_fork_the_tree(store_url: str, ledger: Ledger, tmp_path: Path):
    file = _written(tmp_path, SERVER)
    ledger.enqueue_many([{"kind": "index"}] * 2_000)
    with Program("sealing", store_url, file), Program("sealing", store_url, file):
        wait_until(lambda: behind(ledger.sealed_log, ledger) == 0)
    check_sealed(ledger, SERVER)


def test_a_running_sealer_stops_with_an_error_if_its_tree_was_changed(store_url: str, ledger: Ledger, opened: Opener):
    """The hashes in its memory are right, but the stored tree was changed."""
    sealer = Sealer(opened(store_url, keys=[SERVER]))
    ledger.enqueue("index")
    sealer.tick()
    tamper(store_url, "UPDATE {heads} SET root = (SELECT public FROM {key_log})")
    ledger.enqueue("index")
    with pytest.raises(SealBroken):
        sealer.seal_all()


def _written(folder: Path, key: KeyFile) -> Path:
    write_key(folder / "srv.key", key)
    return folder / "srv.key"
