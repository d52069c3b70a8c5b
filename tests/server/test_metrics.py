"""The metrics of a server: what they say, and that no caller can make their number grow without end."""

import http.client
import random
import string
from pathlib import Path

import holdfast
from holdfast.server.metrics import METHODS
from holdfast.server.routes import ROUTES
from holdfast.watch.process import NAMES_MAX
from tests.contract.builders import dead_lettered
from tests.support.server import Client, RunningServer, running

STRANGE = 10_000


def series(page: bytes) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_strange_paths_methods_and_names_do_not_make_the_metrics_grow(tmp_path: Path) -> None:
    draw = random.Random(17)
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        token = server.client().token
        assert token is not None
        _send_strange_paths(server, draw)
        names = ["".join(draw.choices(string.printable.strip() + "äß漢", k=draw.randint(1, 30))) for _ in range(STRANGE)]
        ledger.enqueue_many([{"kind": f"k-{n}", "queue": f"{n}-{name}"} for n, name in enumerate(names)])
        page = Client(server.port, token).get("/metrics").body
        found = series(page)
        by_name: dict[str, int] = {}
        for name in found:
            by_name[name.partition("{")[0]] = by_name.get(name.partition("{")[0], 0) + 1
        assert by_name["holdfast_enqueued_total"] == by_name["holdfast_jobs"] == NAMES_MAX + 1
        assert by_name["holdfast_oldest_ready_seconds"] <= NAMES_MAX + 1
        assert by_name["holdfast_http_requests_total"] <= (len(METHODS) + 1) * 10
        assert found['holdfast_http_requests_total{method="GET",route="other",status="404"}'] >= STRANGE // 10
        assert found['holdfast_http_requests_total{method="other",route="other",status="404"}'] > 0
        again = Client(server.port, token).get("/metrics").body
        assert len(series(again)) <= len(found) + 30, "the page itself adds only its own buckets"


def _send_strange_paths(server: RunningServer, draw: random.Random) -> None:
    """Send many requests for pages that do not exist, with methods of any name, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for number in range(STRANGE):
        name = "".join(draw.choices(string.ascii_letters + string.digits + "-._~%", k=draw.randint(1, 40)))
        method = draw.choice(["GET", "POST", "DELETE", "PURGE", "PROPFIND"])
        connection.request(method, f"/{number}/{name}?{name}", headers={"X-Request-Id": name})
        connection.getresponse().read()
    connection.close()


def test_requests_are_counted_by_the_pattern_of_their_route(served: RunningServer, admin: Client) -> None:
    job = admin.post("/v1/jobs", {"kind": "k"}).data["job"]
    for job_id in (job["id"], 7_000, 8_000):
        admin.get(f"/v1/jobs/{job_id}")
    found = series(admin.get("/metrics").body)
    name = "holdfast_http_requests_total"
    assert found[f'{name}{{method="POST",route="/v1/jobs",status="201"}}'] == 1
    assert found[f'{name}{{method="GET",route="/v1/jobs/{{job_id}}",status="200"}}'] == 1
    assert found[f'{name}{{method="GET",route="/v1/jobs/{{job_id}}",status="404"}}'] == 2
    assert found['holdfast_http_request_seconds_count{route="/v1/jobs/{job_id}"}'] == 3
    assert {route.path for route in ROUTES} >= {"/v1/jobs", "/v1/jobs/{job_id}"}


def test_a_token_for_some_queues_does_not_read_the_metrics_of_all(served: RunningServer) -> None:
    assert served.client("reader", "eye").get("/metrics").status == 200
    assert served.client("reader", "mail", queues=["mail"]).get("/metrics").status == 403


def test_the_state_of_the_ledger_is_in_the_metrics(served: RunningServer, admin: Client) -> None:
    dead_lettered(served.ledger)
    served.ledger.enqueue("k", queue="mail")
    served.ledger.sign_in("w-1", body={})
    found = series(admin.get("/metrics").body)
    assert found["holdfast_dead_letters_waiting"] == 1
    assert found['holdfast_oldest_ready_seconds{queue="mail"}'] == 0
    assert found['holdfast_workers{state="fresh"}'] == 1
    assert found['holdfast_findings{code="dead_letters"}'] == 1
