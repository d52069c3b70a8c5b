"""`holdfast worker run`: real workers, real signals."""

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

import holdfast
from holdfast import Ledger
from holdfast.keeping.signals import REPEAT_SECONDS
from tests.cli.conftest import Run, Start
from tests.support.waiting import wait_until

TASKS = """
import holdfast

app = holdfast.App()


@app.handler(queue="mail", attempts_max=3)
def welcome(name: str) -> str:
    return f"Hello, {name}!"
"""


def open_the_gate(folder: Path) -> None:
    (folder / "gate").write_text("through")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_lets_running_jobs_finish(store_url: str, folder: Path, start: Start, number: signal.Signals) -> None:
    with holdfast.open(store_url) as ledger:
        first, second = ledger.enqueue_many([{"kind": "hold", "queue": "hold"}] * 2)
        worker = start("worker", "run", "shop:app", "--threads", 1, SHOP_URL=store_url)
        assert worker.line() == f"began {first.id}"
        worker.signal(number)
        worker.logged("stopping: ")
        open_the_gate(folder)

        assert worker.rest().code == 0
        assert ledger.get(first.id).result == "through"
        assert ledger.get(second.id).status == "queued"
        assert ledger.workers() == []


def test_the_second_signal_releases_all_jobs_at_once(store_url: str, start: Start) -> None:
    with holdfast.open(store_url) as ledger:
        job = ledger.enqueue("hold", queue="hold")
        worker = start("worker", "run", "shop:app", SHOP_URL=store_url)
        assert worker.line() == f"began {job.id}"
        worker.signal()
        worker.logged("stopping: ")
        time.sleep(2 * REPEAT_SECONDS)  # an earlier signal would be taken for a repetition of the first
        worker.signal()

        worker.logged("stopping at once: ")
        assert worker.rest().code == 0
        found = ledger.get(job.id)
        assert (found.status, found.releases) == ("queued", 1)
        assert ledger.check(job.id) == []


def test_a_job_that_does_not_finish_in_time_is_released(folder: Path, start: Start) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        job = ledger.enqueue("hold", queue="hold")
        worker = start("worker", "run", "shop:app", "--shutdown-timeout", "10ms")
        worker.line()
        worker.signal()

        assert worker.rest().code == 0
        assert ledger.get(job.id).status == "queued"


def test_a_worker_signs_in_under_its_name(store_url: str, run: Run, start: Start) -> None:
    start("worker", "run", "shop:app", "--name", "ada", "--queues", "b,a", SHOP_URL=store_url)
    with holdfast.open(store_url) as ledger:
        wait_until(ledger.workers)
    listed = run("worker", "list", "--db", store_url)
    assert "ada" in listed.out
    assert "b, a" in listed.out
    [record] = run("worker", "list", "--db", store_url, "--json").answer["data"]["workers"]
    assert (record["name"], record["details"]["queues"], record["details"]["holding"]) == ("ada", ["b", "a"], 0)


@pytest.mark.parametrize(("queues", "first"), [("b,a", "mark"), ("a,b", "note")])
def test_a_list_of_queues_is_in_strict_order(folder: Path, start: Start, queues: str, first: str) -> None:
    enqueue_both(folder)
    worker = start("worker", "run", "shop:app", "--queues", queues, "--threads", 1)
    assert [worker.line() for _ in range(2)] == [first] * 2


def test_queues_may_have_weights(folder: Path, start: Start) -> None:
    enqueue_both(folder)
    worker = start("worker", "run", "shop:app", "--queues", "a=3,b=1", "--threads", 1)
    assert sorted(worker.line() for _ in range(4)) == ["mark", "mark", "note", "note"]


@pytest.mark.parametrize("queues", ["slow", "slow,a", "slow=2,b=1"])
def test_all_handlers_serve_a_queue_that_is_named(folder: Path, start: Start, queues: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        ledger.enqueue_many([{"kind": "note", "queue": "slow"}, {"kind": "mark", "queue": "slow"}])
    worker = start("worker", "run", "shop:app", "--queues", queues, "--threads", 1)
    assert worker.logged("no handler declares the queue slow, only a, b, hold")["level"] == "WARNING"
    assert {worker.line(), worker.line()} == {"note", "mark"}


def enqueue_both(folder: Path) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        ledger.enqueue_many([{"kind": kind, "queue": queue} for kind, queue in [("note", "a"), ("mark", "b")] * 2])


def test_a_worker_may_use_another_ledger_than_its_app(store_url: str, folder: Path, start: Start) -> None:
    """Handlers in child processes use the same ledger."""
    (folder / "far.py").write_text(
        "from holdfast import App\napp = App('sqlite:///far.db')\n"
        "@app.handler(isolation='process')\ndef far() -> int:\n    return app.enqueue('near').id\n"
        "@app.handler()\ndef near() -> str:\n    return 'done'\n"
    )
    with holdfast.open(store_url) as ledger:
        ledger.enqueue("far")
        start("worker", "run", "far:app", "--db", store_url)
        wait_until(lambda: near_is_done(ledger))
    assert not (folder / "far.db").exists()


def near_is_done(ledger: Ledger) -> bool:
    return bool(ledger.list(kind="near", status="succeeded"))


@pytest.mark.parametrize(("options", "host"), [([], "127.0.0.1"), (["--metrics-host", "localhost"], "localhost")])
def test_metrics_are_served_at_the_logged_address(start: Start, options: list[str], host: str) -> None:
    worker = start("worker", "run", "shop:app", "--metrics-port", 0, *options)
    url = worker.logged("serving metrics")["url"]
    assert url.startswith(f"http://{host}:")
    with urlopen(url, timeout=30) as page:  # noqa: S310 - our own worker
        assert b"holdfast_ledger_up 1" in page.read()


@pytest.mark.parametrize(("options", "begins"), [([], "{"), (["--log", "json"], "{"), (["--log", "text"], "2")])
def test_the_log_is_json_unless_text_is_requested(folder: Path, start: Start, options: list[str], begins: str) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        ledger.enqueue("note", queue="a")
    worker = start("worker", "run", "shop:app", *options)
    worker.line()
    worker.signal()
    said = worker.rest().err.splitlines()[0]
    assert "worker started" in said
    assert said.startswith(begins)


def test_a_handler_in_a_child_process_logs_in_the_format_of_its_worker(folder: Path, start: Start) -> None:
    (folder / "apart.py").write_text(
        "import logging\nfrom holdfast import App\n"
        "app = App('sqlite:///apart.db')\n"
        "@app.handler(isolation='process', attempts_max=1)\n"
        "def talk() -> None:\n    logging.getLogger('mine').info('from afar')\n"
        "    raise ValueError('far too far')\n"
    )
    with holdfast.open(f"sqlite:///{folder}/apart.db") as ledger:
        job = ledger.enqueue("talk")
    worker = start("worker", "run", "apart:app", "--name", "ada")
    said = worker.logged("from afar")
    assert (said["job_id"], said["kind"], said["worker"], said["level"]) == (job.id, "talk", "ada", "INFO")
    ended = worker.logged(f"job {job.id} dead-lettered (exhausted_retries): ValueError: far too far")
    assert "raise ValueError('far too far')" in ended["exception"]


def test_a_worker_that_gives_up_reports_it(folder: Path, start: Start) -> None:
    (folder / "stuck.py").write_text(
        "import threading\nfrom holdfast import App\nfrom holdfast.worker import heartbeats, worker\n"
        "worker.ABANDONED_MAX, heartbeats.GRACE_SECONDS = 0, 0.0\n"
        "app = App('sqlite:///stuck.db')\n"
        "@app.handler(timeout='1ms')\ndef stuck() -> None:\n    threading.Event().wait()\n"
    )
    with holdfast.open(f"sqlite:///{folder}/stuck.db") as ledger:
        ledger.enqueue("stuck")
    done = start("worker", "run", "stuck:app", "--json", "--log-level", "critical").rest()
    assert done.code == 1
    assert done.answer["error_code"] == "gave_up"


def test_an_orderly_end_as_json(start: Start) -> None:
    worker = start("worker", "run", "shop:app", "--name", "ada", "--json")
    worker.logged("worker started")
    worker.signal()
    done = worker.rest()
    assert (done.code, done.answer["data"]) == (0, {"worker": "ada"})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere:app"], 2, "there is no module nowhere"),
        (["shop.deeper:app"], 2, "there is no module shop.deeper"),
        (["shop.py:app"], 2, "Name the module, not its file: shop."),
        (["shop"], 2, "shop does not name an app"),
        (["..:app"], 2, ".. is not the name of a module"),
        (["shop:nothing"], 2, "there is no nothing in shop"),
        (["shop:words"], 2, "shop:words is not an App but of type str"),
        (["shop:app", "shop:other"], 2, "different ledgers: sqlite:///other.db, sqlite:///shop.db"),
        (["shop:app", "--queues", "a,b=1"], 2, "either all queues have a weight"),
        (["shop:app", "--queues", ""], 2, "queues are named as in"),
        (["shop:app", "--queues", "a,a"], 2, "each queue may be named once"),
        (["shop:app", "--shutdown-timeout", "soon"], 2, "is not a duration"),
        (["shop:app", "--queues", "a=0"], 2, "weight must be from 1 to 1000"),
        (["shop:app", "--db", "mysql://here"], 2, "a ledger's url starts with"),
        (["shop:app", "--db", "postgresql://127.0.0.1:1/none"], 3, "unavailable: cannot reach the database"),
    ],
)
def test_wrong_settings_are_reported_without_a_traceback(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run("worker", "run", *arguments)
    assert (done.code, done.out) == (code, "")
    assert any(message in line for line in done.err.splitlines()[-2:])
    assert "Traceback" not in done.err

    answer = run("worker", "run", *arguments, "--json").answer
    assert answer["success"] is False
    assert answer["error_code"] == ("usage" if code == 2 else message.partition(":")[0])


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("def broken():\n    return 1 / 0\nbroken()\n", "ZeroDivisionError: division by zero"),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("app = (\n", "SyntaxError: '(' was never closed"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_the_traceback_of_a_failing_module_starts_in_that_module(run: Run, folder: Path, text: str, last: str) -> None:
    (folder / "broken.py").write_text(text)
    done = run("worker", "run", "broken:app", "--json")
    assert done.code == 1
    lines = done.err.splitlines()
    assert lines[-1] == last
    assert next(line for line in lines if line.startswith("  File ")).startswith(f'  File "{folder}/broken.py", line ')
    assert json.loads(done.out)["error_code"] == "import_failed"


def test_a_child_process_logs_in_the_format_of_its_worker(folder: Path, start: Start) -> None:
    (folder / "far.py").write_text(
        "import logging\nfrom holdfast import App\napp = App('sqlite:///far.db')\n"
        "@app.handler(isolation='process')\ndef talk() -> None:\n    logging.getLogger('mine').info('from afar')\n"
    )
    with holdfast.open(f"sqlite:///{folder}/far.db") as ledger:
        job = ledger.enqueue("talk", correlation_id="c-1")
        worker = start("worker", "run", "far:app", "--log", "json")
        line = worker.logged("from afar")
        assert (line["logger"], line["job_id"], line["correlation_id"]) == ("mine", job.id, "c-1")
        worker.signal()
        assert worker.rest().code == 0


def test_a_worker_logs_its_ledger(start: Start) -> None:
    worker = start("worker", "run", "shop:app", HOLDFAST_URL="postgresql://me:secret@db.example/jobs")
    warned = worker.logged("using the ledger that the app names; HOLDFAST_URL names another one")
    assert (warned["ledger"], warned["not"]) == ("sqlite:///shop.db", "postgresql://me:…@db.example/jobs")
    assert worker.logged("worker started")["ledger"] == "sqlite:///shop.db"
    worker.signal()
    assert worker.rest().code == 0


def test_a_ledger_given_as_an_option_causes_no_warning(start: Start) -> None:
    worker = start("worker", "run", "shop:app", "--db", "sqlite:///typed.db", HOLDFAST_URL="sqlite:///environment.db")
    assert worker.logged("worker started")["ledger"] == "sqlite:///typed.db"
    worker.signal()
    assert "names another one" not in worker.rest().err


def test_an_app_without_a_url_shares_ledger_and_queue_with_the_commands(run: Run, start: Start, folder: Path) -> None:
    (folder / "tasks.py").write_text(TASKS)
    running = start("worker", "run", "tasks:app")
    running.says("worker started")
    assert run("job", "enqueue", "welcome", "--args", '{"name": "Ada"}').out == "Job 1 is queued in mail.\n"
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        assert ledger.wait(1, timeout=30).result == "Hello, Ada!"
    running.signal()
    assert running.rest().code == 0
    assert run("job", "enqueue", "welcome", "--args", '{"name": "Grace"}').out == "Job 2 is queued in mail.\n"


def test_several_workers_are_kept_running(folder: Path, start: Start) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        jobs = ledger.enqueue_many([{"kind": "hold", "queue": "hold"}] * 2)
        command = start("worker", "run", "shop:app", "--workers", 2, "--threads", 1, "--name", "shop", "--json")
        began = {command.line(), command.line()}
        assert began == {f"began {job.id}" for job in jobs}
        wait_until(lambda: sorted(record.name for record in ledger.workers()) == ["shop-1", "shop-2"])
        before = {record.name: record.details["pid"] for record in ledger.workers()}

        os.kill(before["shop-1"], signal.SIGKILL)
        command.logged("worker ended, and is started again")
        wait_until(
            lambda: {record.details["pid"] for record in ledger.workers() if record.name == "shop-1"} - set(before.values())
        )

        command.signal()
        time.sleep(2 * REPEAT_SECONDS)  # an earlier signal would be taken for a repetition of the first
        command.signal()
        done = command.rest()
        assert done.code == 0
        assert json.loads(done.out.splitlines()[-1])["data"] == {"workers": 2, "restarts": 1}
        assert {ledger.get(job.id).status.value for job in jobs} <= {"queued", "running"}


def test_a_hangup_stops_several_workers_in_order(folder: Path, start: Start) -> None:
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        job = ledger.enqueue("hold", queue="hold")
        command = start("worker", "run", "shop:app", "--workers", 2)
        assert command.line() == f"began {job.id}"
        command.signal(signal.SIGHUP)
        command.logged("stopping: ")
        open_the_gate(folder)
        assert command.rest().code == 0
        assert ledger.get(job.id).result == "through"
        assert ledger.workers() == []


def test_an_ignored_hangup_stops_nothing(folder: Path, start: Start) -> None:
    """As under nohup."""
    (folder / "deaf.py").write_text("import signal\nfrom shop import app\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n")
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        worker = start("worker", "run", "deaf:app")
        worker.logged("worker started")
        worker.signal(signal.SIGHUP)
        ledger.enqueue("note", queue="a")
        assert worker.line() == "note"
        worker.signal()
        assert worker.rest().code == 0


def test_several_workers_wait_for_an_unreachable_ledger_until_a_signal(start: Start) -> None:
    command = start("worker", "run", "shop:app", "--workers", 2, "--db", "postgresql://127.0.0.1:1/none", "--json")
    for _ in range(2):
        command.logged("worker cannot reach the ledger, and is started again")
    command.signal()
    done = command.rest()
    assert (done.code, done.answer["error_code"]) == (3, "unavailable")


def test_a_worker_that_is_given_up_ends_the_others_in_order(folder: Path, start: Start) -> None:
    """The module becomes broken while the workers run."""
    with holdfast.open(f"sqlite:///{folder}/shop.db") as ledger:
        command = start("worker", "run", "shop:app", "--workers", 2, "--name", "shop", "--json")
        wait_until(lambda: sorted(record.name for record in ledger.workers()) == ["shop-1", "shop-2"])
        (folder / "shop.py").write_text("1 / 0\n")
        [pid] = [record.details["pid"] for record in ledger.workers() if record.name == "shop-1"]
        os.kill(pid, signal.SIGKILL)
        command.says("worker is not started again, and the others are stopped")
        done = command.rest()
        assert (done.code, done.answer["error_code"]) == (1, "gave_up")
        assert [record.name for record in ledger.workers()] == ["shop-1"]


def test_workers_with_wrong_arguments_are_not_restarted(run: Run) -> None:
    done = run("worker", "run", "shop:words", "--workers", 2, "--json")
    assert (done.code, done.answer["error_code"]) == (2, "gave_up")
    done = run("worker", "run", "shop:app", "--workers", 2, "--metrics-port", 65_535)
    assert (done.code, "need ports up to 65536" in done.err) == (2, True)


def test_each_of_several_workers_serves_metrics_on_a_port_of_its_own(start: Start) -> None:
    port = two_free_ports()
    command = start("worker", "run", "shop:app", "--workers", 2, "--name", "shop", "--metrics-port", port)
    served = {line["worker"]: line["url"] for line in (command.logged("serving metrics") for _ in range(2))}
    assert served == {f"shop-{n}": f"http://127.0.0.1:{port + n - 1}/metrics" for n in (1, 2)}
    for url in served.values():
        with urlopen(url, timeout=30) as page:  # noqa: S310 - our own worker
            assert b"holdfast_ledger_up 1" in page.read()


def two_free_ports() -> int:
    """The first of two free ports in a row."""
    while True:
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError, OverflowError):
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            second.bind(("127.0.0.1", port + 1))
            return port
