"""`holdfast seal`: in its own process, until a signal."""

from pathlib import Path

import holdfast
from holdfast.files.keys import write_key
from tests.cli.conftest import Run, Start
from tests.support.sealing import check_sealed, drawn, enrol, tamper
from tests.support.waiting import wait_until

SERVER = drawn()


def made(folder: Path) -> holdfast.Ledger:
    write_key(folder / "srv.key", SERVER)
    ledger = holdfast.open(f"sqlite:///{folder}/holdfast.db", keys=[SERVER])
    enrol(ledger, SERVER)
    return ledger


def test_once_seals_and_anchors_all_events(folder: Path, run: Run):
    with made(folder) as ledger:
        ledger.enqueue("index")
        done = run("seal", "--once", "--anchor", "heads.txt", "--json", HOLDFAST_KEYS="srv.key")
        check_sealed(ledger, SERVER)
        head = ledger.head()
    assert head is not None
    assert done.code == 0
    assert done.answer["data"] == {"head": {"size": 2, "pos": head.pos, "note": head.note}}
    assert (folder / "heads.txt").read_text() == head.note + "\n"
    assert run("seal", "--once", HOLDFAST_KEYS="srv.key").out == f"Sealed up to position {head.pos}: 2 leaves.\n"


def test_seal_runs_until_a_signal(folder: Path, start: Start):
    with made(folder) as ledger:
        sealer = start("seal", "--every", "50ms", "--anchor", "heads.txt", "--json", HOLDFAST_KEYS="srv.key")
        began = sealer.logged("sealing")
        assert (began["ledger"], began["keys"], began["anchors"]) == (ledger.id, [SERVER.key_id], ["file heads.txt"])
        for _ in range(2):
            ledger.enqueue("index")
            wait_until(lambda: (head := ledger.head()) is not None and not ledger.sealed_log.events_after(head.pos))
        sealer.signal()
        assert sealer.rest().code == 0
        check_sealed(ledger, SERVER)


def test_a_second_sealer_is_refused(folder: Path, run: Run):
    with made(folder) as ledger:
        assert ledger.take_duty("seal", "another", ttl=60)
        done = run("seal", "--once", "--json", HOLDFAST_KEYS="srv.key")
    assert (done.code, done.answer["error_code"]) == (1, "lease_conflict")


def test_without_a_key_nothing_is_sealed(folder: Path, run: Run):
    with made(folder) as ledger:
        done = run("seal", "--once", "--json")
        assert (done.code, done.answer["error_code"]) == (1, "forbidden")
        assert ledger.head() is None


def test_a_tampered_tree_ends_the_sealer(folder: Path, run: Run):
    with made(folder) as ledger:
        run("seal", "--once", HOLDFAST_KEYS="srv.key")
        tamper(f"sqlite:///{folder}/holdfast.db", "UPDATE {heads} SET note = 'trust me'")
        ledger.enqueue("index")
        done = run("seal", "--json", HOLDFAST_KEYS="srv.key")
    assert (done.code, done.answer["error_code"]) == (1, "seal_broken")


def test_a_sealer_runs_beside_a_worker(folder: Path, start: Start):
    write_key(folder / "srv.key", SERVER)
    url = f"sqlite:///{folder}/shop.db"
    with holdfast.open(url, keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        ledger.enqueue("note", queue="a")
        sealer = start("seal", "--db", url, "--anchor", "heads.txt", HOLDFAST_KEYS="srv.key")
        worker = start("worker", "run", "shop:app")
        wait_until(lambda: (head := ledger.head()) is not None and head.size >= 5)
        for program in (worker, sealer):
            program.signal()
            assert program.rest().code == 0
        check_sealed(ledger, SERVER)
        head = ledger.head()
    assert head is not None
    assert (folder / "heads.txt").read_text().endswith(head.note + "\n")
