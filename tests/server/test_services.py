"""The services inside `holdfast serve`: each does its work, tells its state, and fails alone."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.files.keys import write_key
from holdfast.services.pruner import SERVER_DUTY, PruneService
from tests.contract.builders import succeeded
from tests.support.receiver import SECRET, Receiver
from tests.support.sealing import check_sealed, drawn, enrol
from tests.support.served_process import SECONDS, Serving, serving
from tests.support.server import Client
from tests.support.waiting import wait_until

SERVER = drawn()
SINK = """
[[server.sinks]]
name = "hooks"
url = "{url}"
secret_file = "hooks.secret"
allow_private = true
types = ["succeeded"]
"""


def write_secret(folder: Path) -> None:
    (folder / "hooks.secret").write_text(SECRET)
    (folder / "hooks.secret").chmod(0o600)


def service_states(server: Serving) -> dict[str, str]:
    found: dict[str, str] = Client(server.port).get("/readyz").data["services"]
    return found


def test_the_server_delivers_events_to_the_sinks_of_its_settings(tmp_path: Path) -> None:
    write_secret(tmp_path)
    with Receiver() as receiver, holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        (tmp_path / "holdfast.toml").write_text("[server]" + SINK.format(url=receiver.url))
        with serving(tmp_path) as server:
            wait_until(lambda: service_states(server)["relay"] == "active")
            wait_until(ledger.sinks)
            job = succeeded(ledger)
            wait_until(lambda: receiver.received)
            assert server.stop() == 0
        [received] = receiver.received
        assert (received.event()["data"]["job_id"], received.event()["data"]["type"]) == (job.id, "succeeded")
        assert ledger.take_duty("relay:hooks", "another", ttl=1), "the duty was not dropped"
    assert SECRET not in (tmp_path / "log").read_text()


def test_the_server_delivers_events_to_the_sinks_of_an_app(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[server]\nsinks_of = "shop:app"\n')
    (tmp_path / "shop.py").write_text(
        "from holdfast import App\nfrom holdfast.services import CallableSink\n"
        "app = App('sqlite:///unused.db')\n"
        "app.sink(CallableSink(lambda m: open('seen', 'a').write(m.data.type + chr(10)), name='file'))\n"
    )
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, serving(tmp_path):
        wait_until(ledger.sinks)
        succeeded(ledger)
        wait_until(lambda: (tmp_path / "seen").exists() and "succeeded" in (tmp_path / "seen").read_text())
    assert not (tmp_path / "unused.db").exists(), "the app's own ledger is not opened"


def test_a_server_with_a_server_key_seals(tmp_path: Path) -> None:
    write_key(tmp_path / "srv.key", SERVER)
    (tmp_path / "holdfast.toml").write_text('[server.seal]\nevery = "200ms"\nanchor = "heads.txt"\n')
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        ledger.enqueue("note")
        with serving(tmp_path, "--key", "srv.key") as server:
            wait_until(lambda: (head := ledger.head()) is not None and head.size >= 2)
            assert service_states(server)["seal"] == "active"
            assert server.stop() == 0
        check_sealed(ledger, SERVER)
        head = ledger.head()
        assert head is not None and (tmp_path / "heads.txt").read_text().endswith(head.note + "\n")


def test_a_service_that_fails_stops_neither_the_server_nor_the_others(tmp_path: Path) -> None:
    write_key(tmp_path / "srv.key", SERVER)
    write_secret(tmp_path)
    enrolled = drawn(name="another")
    with Receiver() as receiver, holdfast.open(f"sqlite:///{tmp_path}/ledger.db", keys=[enrolled]) as ledger:
        enrol(ledger, enrolled)
        token = ledger.new_token("admin", "root", act_as=["*"]).text
        (tmp_path / "holdfast.toml").write_text("[server]" + SINK.format(url=receiver.url))
        with serving(tmp_path, "--key", "srv.key") as server:
            admin = Client(server.port, token)
            wait_until(lambda: service_states(server)["seal"] == "failing")
            wait_until(ledger.sinks)
            admin.post("/v1/jobs", {"kind": "greet"})
            worker = admin.acting(Holdfast_Actor="worker:w-1#boot")
            [claimed] = worker.post("/v1/claims", {"queues": ["default"], "start": True}).data["jobs"]
            assert worker.post(f"/v1/jobs/{claimed['id']}/complete", {"fence": claimed["fence"]}).status == 200
            wait_until(lambda: receiver.received)
            assert admin.get("/readyz").status == 200
            metrics = admin.get("/metrics").body.decode()
            assert 'holdfast_service_up{service="seal"} 0.0' in metrics
            assert 'holdfast_service_up{service="relay"} 1.0' in metrics
            [finding] = [one for one in admin.get("/v1/doctor").data["findings"] if one["code"] == "services"]
            assert (finding["severity"], "seal (forbidden)" in finding["words"]) == ("warning", True)
            assert server.stop() == 0
    log = (tmp_path / "log").read_text()
    assert log.count("seal: forbidden") == 1, "an outage is logged once"


def test_services_can_be_switched_off(tmp_path: Path) -> None:
    write_key(tmp_path / "srv.key", SERVER)
    write_secret(tmp_path)
    (tmp_path / "holdfast.toml").write_text('[server]\nservices = ["history"]\n' + SINK.format(url="https://hooks.example/"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
    with serving(tmp_path, "--key", "srv.key") as server:
        found = wait_until(lambda: (states := service_states(server))["history"] == "active" and states)
        assert found == {
            "sweep": "off",
            "prune": "off",
            "history": "active",
            "relay": "off",
            "seal": "off",
            "token_use": "active",
        }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('[server]\nservices = ["fly"]\n', "services"),
        ('[server]\nkeep_jobs = "soon"\n', "keep_jobs"),
        ('[server]\nsinks_of = "absent:app"\n', "there is no module absent"),
        ("[server]" + SINK.format(url="https://hooks.example/").replace("hooks.secret", "absent"), "absent cannot be used"),
        ("[server]" + 2 * SINK.format(url="https://hooks.example/"), "two sinks have the same name"),
        ("[server]" + SINK.format(url="ftp://hooks.example/"), "url"),
        ('[server.seal]\nanchor_url = "https://hooks.example/"\n', "anchor_url"),
        ('[server.seal]\nevery = "0s"\n', "every"),
    ],
)
def test_wrong_settings_are_refused_before_the_server_listens(tmp_path: Path, settings: str, words: str) -> None:
    write_key(tmp_path / "srv.key", SERVER)
    write_secret(tmp_path)
    (tmp_path / "holdfast.toml").write_text(settings)
    command = [sys.executable, "-m", "holdfast", "serve", "--db", "sqlite:///ledger.db", "--port", "0", "--key", "srv.key"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ended.returncode, words in " ".join(ended.stderr.split()), ended.stdout) == (2, True, ""), ended.stderr


def test_a_server_that_keeps_everything_does_not_stop_a_worker_that_deletes(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        succeeded(ledger)
        assert "jobs" not in PruneService(ledger, "server#1", duty=SERVER_DUTY).tick()
        assert PruneService(ledger, "w-1#1", jobs=0).tick()["jobs"] == 1
