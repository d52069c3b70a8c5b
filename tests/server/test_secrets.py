"""Tokens, fences, cookies, codes and redacted values are in no log, error, metric, event, export, stream or row of the store."""

import json
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import holdfast
from holdfast.server.routes import ROUTES
from tests.support.served_process import Serving, serving
from tests.support.server import Client
from tests.support.tables import all_rows

CARD = "4111-1111-1111-1111"
PASSWORD = "correct-horse-battery"  # noqa: S105 - it is searched for
SETTINGS = '[server]\nredact = ["*.card", "*.password"]\n'
NAMES = {"job_id": "1", "scope": "kinds", "token_id": "aaaaaaaaaaaa", "key_id": "0" * 16, "code": "conflict"}
STREAMS = frozenset({"/v1/events/stream"})


class Output:
    """Everything that a server has said, and the secrets to search for in it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.secrets: dict[str, str] = {}

    def note(self, answer: Any, *allowed: str) -> Any:
        """Keep an answer, without the secrets that it is there to give."""
        text = f"{answer.status} {answer.headers} {answer.body.decode(errors='replace')}"
        for secret in allowed:
            assert secret in text
            text = text.replace(secret, "")
        self.said.append(text)
        return answer

    def check(self) -> None:
        assert len(self.said) > 100
        for name, secret in self.secrets.items():
            for text in self.said:
                assert secret not in text, (name, text[:500])


def _path(path: str) -> str:
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "x"), path)
    return path + {"/v1/wake": "?wait_s=0"}.get(path, "")


def _log_in(output: Output, server: Serving) -> Client:
    code = re.search(r"#code=(\S+)$", server.lines[1])
    assert code is not None
    page = {"Origin": server.url, "Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
    begun = Client(server.port).post("/v1/session", {"code": code[1]}, **page)
    cookie = begun.headers["set-cookie"].partition(";")[0]
    output.secrets |= {"the login code": code[1], "the cookie": cookie.partition("=")[2]}
    output.note(begun, output.secrets["the cookie"])
    return Client(server.port, None, Cookie=cookie, **page)


def _work(output: Output, root: Client, worker: Client) -> None:
    """Enqueue, claim, beat, fail and complete with secrets everywhere, and once with a wrong fence."""
    hidden = {"card": CARD, "deep": {"password": PASSWORD}}
    for _ in range(3):
        output.note(root.post("/v1/jobs", {"kind": "pay", "args": hidden}), CARD, PASSWORD)
    claimed = worker.post("/v1/claims", {"queues": ["default"], "limit": 3, "start": True})
    jobs = claimed.data["jobs"]
    output.secrets |= {f"the fence of job {job['id']}": job["fence"]["token"] for job in jobs}
    output.note(claimed, *{job["fence"]["token"] for job in jobs}, CARD, PASSWORD)
    first, second, third = (job["fence"] for job in jobs)
    output.note(worker.post("/v1/jobs/1/heartbeat", {"fence": first, "checkpoint": hidden}))
    error = {"type": "Declined", "message": "no", "card": CARD}
    output.note(worker.post("/v1/jobs/1/fail", {"fence": first, "error": error, "retryable": False}), CARD, PASSWORD)
    output.note(worker.post("/v1/jobs/1/complete", {"fence": first}))
    output.note(worker.post("/v1/jobs/2/complete", {"fence": second, "result": hidden}))
    output.note(worker.post("/v1/jobs/3/complete", {"fence": {**third, "worker": "other"}}))
    output.note(worker.post("/v1/jobs/3/complete", {"fence": third, "colour": third["token"]}))
    output.note(worker.post("/v1/heartbeats", {"fences": [first, third]}))


def _stream(output: Output, client: Client) -> None:
    head = f"GET /v1/events/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {client.token}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall(head.encode())
        said = b""
        while said.count(b"event: event") < 10:
            part = connection.recv(65_536)
            assert part
            said += part
    output.said.append(said.decode())


def test_secrets_are_nowhere_in_the_output(tmp_path: Path) -> None:
    output = Output()
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    with serving(tmp_path, lines=2) as server:
        browser = _log_in(output, server)
        texts = {}
        for role in ("admin", "worker", "reader"):
            made = browser.post("/v1/tokens", {"role": role, "name": f"a-{role}"})
            texts[role] = made.data["text"]
            output.note(made, texts[role])
            output.secrets[f"the token of the {role}"] = texts[role].split("_", 2)[2]
        root, worker, reader = (Client(server.port, texts[role]) for role in ("admin", "worker", "reader"))
        _work(output, root, worker)
        _stream(output, reader)
        for route in ROUTES:
            if route.path in STREAMS:
                continue
            for client in (reader, Client(server.port, texts["reader"][:-1] + "x"), Client(server.port)):
                body = {"password": PASSWORD, "colour": texts["admin"]} if route.body is not None else None
                output.note(client.send(route.method, _path(route.path), body))
        for place in ("text", "cursor", "queue", "colour"):
            output.note(reader.get(f"/v1/jobs?{place}={quote(texts['admin'])}"))
        output.note(reader.get(f"/v1/jobs/{texts['admin']}"))
        output.note(reader.get("/v1/jobs", Holdfast_Incarnation=texts["admin"] * 3, X_Request_Id=texts["admin"]))
        output.said.append(json.dumps(all_rows(url)["holdfast_tokens"] + all_rows(url)["holdfast_sessions"]))
        assert server.stop() == 0
    output.said += (tmp_path / "log").read_text().splitlines()
    output.secrets |= {"the card": CARD, "the password": PASSWORD}
    output.check()


def test_hostile_names_do_not_split_lines_of_the_log_or_headers(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        token = ledger.new_token("admin", "root").text
    hostile = "a\r\nSet-Cookie: x=1\r\n\x1b[2J"
    with serving(tmp_path) as server:
        root = Client(server.port, token)
        answers = [
            root.post(f"/v1/queues/{quote(hostile, safe='')}/pause"),
            root.post("/v1/jobs", {"kind": hostile}),
            root.post("/v1/jobs", {"kind": "k", "args": {"text": hostile}}),
            root.get(f"/v1/jobs?queue={quote(hostile)}"),
            root.get(f"/{quote(hostile)}"),
            root.get("/v1/jobs", X_Request_Id="a\tb"),
            root.post("/v1/jobs", {"kind": "k"}, Idempotency_Key="\u043a\u043b\u044e\u0447".encode().decode("latin-1")),
            root.send("PATCH", "/v1/jobs"),
        ]
        assert server.stop() == 0
    assert [answer.status for answer in answers] == [400, 400, 201, 400, 404, 200, 201, 405]
    for answer in answers:
        assert "set-cookie" not in answer.headers and answer.headers["x-content-type-options"] == "nosniff"
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", answer.headers["x-request-id"])
    log = (tmp_path / "log").read_text()
    assert "\x1b" not in log and "Set-Cookie" not in log
    requests = [json.loads(line) for line in log.splitlines()]
    assert [line["status"] for line in requests if line.get("status")] == [answer.status for answer in answers]
