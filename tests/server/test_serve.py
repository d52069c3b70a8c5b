"""`holdfast serve` as a process of its own."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue

import holdfast
from tests.support.provider import query_of, running_provider, sign_in_at
from tests.support.served_process import SECONDS, free_port, serving
from tests.support.server import Answer, Client
from tests.support.waiting import wait_until


def test_a_person_signs_in_by_the_printed_link(tmp_path: Path) -> None:
    with serving(tmp_path, lines=2) as server:
        code = re.search(r"#code=(\S+)$", server.lines[1])
        assert code is not None
        page = {"Origin": server.url, "Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
        begun = Client(server.port).post("/v1/session", {"code": code[1]}, **page)
        assert begun.status == 204
        browser = Client(server.port, None, Cookie=begun.headers["set-cookie"].partition(";")[0])
        assert browser.get("/v1/me").data["role"] == "admin"
        assert server.stop() == 0
    log = (tmp_path / "log").read_text()
    assert code[1] not in log
    assert "did not exist: an empty ledger was created" in log


def test_a_worker_takes_part_with_its_token(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("worker", "arm-1").text
        ledger.enqueue("weld", {"seam": 3})
    with serving(tmp_path) as server:
        arm = Client(server.port, token)
        [job] = arm.post("/v1/claims", {"queues": ["default"], "start": True}).data["jobs"]
        assert arm.post(f"/v1/jobs/{job['id']}/complete", {"fence": job["fence"]}).status == 200
        assert arm.get("/healthz").status == arm.get("/readyz").status == 200
        assert server.stop() == 0
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    lines = [line for line in log if line.get("route") == "/v1/claims"]
    assert [(line["status"], line["principal"], line["role"]) for line in lines] == [(200, "arm-1", "worker")]
    assert token not in (tmp_path / "log").read_text() and job["fence"]["token"] not in (tmp_path / "log").read_text()


def test_requests_that_idle_workers_and_probes_repeat_are_not_logged(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("worker", "arm-1").text
    with serving(tmp_path) as server:
        arm = Client(server.port, token)
        assert arm.post("/v1/claims", {"queues": ["default"]}).data["jobs"] == []
        assert arm.get("/v1/wake?wait_s=0").status == arm.get("/healthz").status == 200
        assert arm.get("/v1/until-ready?queues=default").status == 200
        assert arm.get("/v1/wake?wait_s=x").status == 400
        assert arm.get("/v1/me").status == 200
        assert server.stop() == 0
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["route"], line["status"]) for line in log if "route" in line] == [("/v1/wake", 400), ("/v1/me", 200)]


def test_the_server_sweeps(tmp_path: Path) -> None:
    policy = {"lease_ttl": 1, "heartbeat_interval": 1, "missed_beats_max": 1, "backoff_base": 0}
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        ledger.new_token("admin", "root")
        job = ledger.enqueue("k", policy=policy)  # type: ignore[arg-type]
        ledger.claim("w-1", start=True)
        with serving(tmp_path):
            found = next(event for event in ledger.follow(ledger.position(), timeout=SECONDS) if event.job_id == job.id)
    assert found.type in ("stalled", "requeued")


def test_options_are_read_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[server]\nredact = ["args.card"]\n\n[server.limits]\nrequests_max = 3\n')
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("reader", "eye").text
        ledger.enqueue("pay", {"card": "4111"})
    with serving(tmp_path) as server:
        assert b"4111" not in Client(server.port, token).get("/v1/jobs/1").body
    (tmp_path / "holdfast.toml").write_text("[server]\ncolour = 1\n")
    command = [sys.executable, "-m", "holdfast", "serve", "--db", "sqlite:///ledger.db"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ended.returncode, "colour" in ended.stderr) == (2, True)


def test_a_public_server_needs_no_token_if_persons_sign_in_by_a_provider(tmp_path: Path) -> None:
    """The settings of the guide, on an address that others can reach, behind a proxy that has TLS."""
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text("drawn-at-random-4711\n")
    with running_provider() as issuer:
        (tmp_path / "holdfast.toml").write_text(
            '[server]\nbehind_proxy = ["127.0.0.1"]\npublic_url = "https://jobs.example.org"\n'
            f'[server.oidc]\nissuer = "{issuer}"\nclient_id = "holdfast"\nclient_secret_file = "secret"\n'
            '[server.oidc.roles]\nops = "operator"\n'
        )
        with holdfast.open(f"sqlite:///{tmp_path}/ledger.db"), serving(tmp_path, port=free_port()) as server:
            browser = Client(server.port, None, Host="jobs.example.org", X_Forwarded_Proto="https")
            begun = browser.get("/auth/login")
            back = sign_in_at(begun.headers["location"], "kim")
            assert back.startswith("https://jobs.example.org/auth/callback?")
            login = begun.cookies[0].partition(";")[0]
            page = browser.get(back.removeprefix("https://jobs.example.org"), Cookie=login)
            assert page.status == 200 and page.cookies[0].startswith("__Host-holdfast=") and "; Secure" in page.cookies[0]
            session = page.cookies[0].partition(";")[0]
            assert browser.get("/v1/me", Cookie=session).data["name"] == "kim@example.org"
            assert browser.get(back.removeprefix("https://jobs.example.org"), Cookie=login).status == 401
            assert server.stop() == 0
    log = (tmp_path / "log").read_text()
    assert '"route":"/auth/callback"' in log and "a sign-in failed" in log
    for secret in (login.partition("=")[2], session.partition("=")[2], *query_of(back).values(), "drawn-at-random"):
        assert secret not in log


def test_a_server_that_stops_answers_what_waits_and_drops_its_duties(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("worker", "arm-1").text
        with serving(tmp_path) as server:
            arm, answers = Client(server.port, token), Queue[Answer]()
            body = {"queues": ["default"], "wait_s": 25}
            waiting = threading.Thread(target=lambda: answers.put(arm.post("/v1/claims", body)), daemon=True)
            waiting.start()
            reader = Client(server.port, ledger.new_token("reader", "eye").text)
            stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
            stream.request("GET", "/v1/events/stream", headers={"Authorization": f"Bearer {reader.token}"})
            following = stream.getresponse()
            while not following.readline().startswith(b"event: hello"):
                pass
            wait_until(lambda: b"holdfast_http_claims_waiting 1.0" in reader.get("/metrics").body)
            wait_until(lambda: arm.get("/readyz").data["services"]["history"] == "active")
            assert server.stop() == 0
            assert answers.get(timeout=SECONDS).data["jobs"] == []
            assert following.read().count(b"event: bye") == 1
        assert ledger.take_duty("history", "another", ttl=1), "the duty was dropped"
    stopped = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line for line in stopped if line["level"] in ("error", "critical")] == []


def test_a_second_signal_ends_a_server_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == 0
