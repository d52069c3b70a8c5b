"""Schemathesis against a real server: a ledger with jobs of every status, and hooks that lead requests to them.

Schemathesis imports this module for its hooks and runs them before each request. A request that fits the document is led to a
job that exists, with its fence, and does not wait. A request that does not fit it is sent as it is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import HeldJob, Ledger
from holdfast.services import HistoryService
from holdfast.services.sealer import Sealer
from tests.support.processes import ROOT

KNOWN = "HOLDFAST_TEST_KNOWN"
"""The variable with what the hooks know: the fences of the jobs that the worker holds, by job id, and the id of the token."""
ELSEWHERE = "9007199254740991"
"""A position that no ledger has. A stream from there on is refused, so it ends."""
POLICY: dict[str, Any] = {"lease_ttl": "1h", "heartbeat_interval": "10m", "attempts_max": 1}
WORKER, INCARNATION = "arm-1", "http"
QUICK = {"NO_PROXY": "127.0.0.1", "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")}
"""Variables that save Schemathesis work: to look for a proxy before each request, and to list the characters of UTF-8 again."""
KEY = holdfast.draw_key("server", "srv")
"""The key of the ledger that `fill` takes."""


def fill(ledger: Ledger) -> dict[int, Any]:
    """Add jobs of every status, and some of everything else. Return the fences of the jobs that the worker holds."""
    ledger.set_policy(kind="weld", **POLICY)
    ledger.enqueue_many([{"kind": "weld", "args": {"card": "4111", "n": n}, "correlation_id": "c-1"} for n in range(16)])
    held = ledger.claim(WORKER, limit=12, incarnation=INCARNATION, start=True)
    for job, end in zip(held, (_complete, _fail, _fail, _stall, _beat), strict=False):
        end(ledger, job)
    replayed = ledger.replay(held[1].id)
    ledger.enqueue("weld", queue="other", depends_on=[replayed.id])
    ledger.cancel(ledger.enqueue("weld", queue="other", delay="1h").id)
    ledger.claim_job(ledger.enqueue("weld", queue="other").id, "arm-2")
    ledger.pause("paused", reason="stock")
    ledger.sign_in(WORKER, incarnation=INCARNATION, body={"queues": ["default"]})
    ledger.enrol_key(KEY.public, role=KEY.role, name=KEY.name)
    ledger.enrol_key(holdfast.draw_key("worker", WORKER).public, role="worker", name=WORKER)
    ledger.set_schedule("default", "weld", cron="0 3 * * *")
    ledger.group("default", then={"kind": "weld", "args": {"card": "4111"}})
    ledger.set_limit("default", concurrent=1_000, by="args.card")
    ledger.enqueue("weld", queue="other", group="default")
    ledger.take_duty("relay", "someone", ttl="1h")
    HistoryService(ledger, "test").tick()
    with Sealer(ledger) as sealer:
        sealer.seal_all()
    return {job.id: _plain(job) for job in held[4:]}


def _plain(job: HeldJob) -> dict[str, Any]:
    fence = job.fence
    names = ("job_id", "attempt", "token", "worker", "incarnation")
    return {name: getattr(fence, name) for name in names}


def _complete(ledger: Ledger, job: HeldJob) -> None:
    ledger.complete(job.fence, {"text": "done"})


def _fail(ledger: Ledger, job: HeldJob) -> None:
    ledger.fail(job.fence, {"type": "OSError", "message": "no room"}, retryable=False, reason_code="timeout")


def _stall(ledger: Ledger, job: HeldJob) -> None:
    ledger.stall(job.fence, error="no arc")


def _beat(ledger: Ledger, job: HeldJob) -> None:
    ledger.heartbeat(job.fence, stage="seam", progress=3, checkpoint={"seam": 3}, undo={"kind": "grind", "args": {"seam": 3}})


def send_generated(folder: Path, url: str, token: str, fences: dict[int, Any], *options: str, seconds: float) -> str:
    """Run Schemathesis over every operation of the server's document and return what it says. Fail if a check fails."""
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(Path(__file__).with_name("schemathesis.toml"))]
    command += ["run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {token}", "--no-color", *options]
    known = {"fences": fences, "token_id": token.split("_")[1]}
    environment = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": __name__, KNOWN: json.dumps(known)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Hooks


def before_call(_: Any, case: Any, **__: Any) -> None:
    """Lead a request to what exists, if it fits the document. Keep the caller's token from being revoked."""
    known = json.loads(os.environ[KNOWN])
    if (case.path_parameters or {}).get("token_id") == known["token_id"]:
        case.path_parameters["token_id"] = "a" * 12
    if case.operation.path == "/v1/events/stream" and "Last-Event-ID" not in (case.headers or {}):
        case.headers = {**(case.headers or {}), "Last-Event-ID": ELSEWHERE}
    if case.operation.path == "/v1/wake" and not (case.query or {}).get("wait_s"):
        case.query = {**(case.query or {}), "wait_s": 0}
    if case.meta is None or case.meta.generation.mode.value != "positive":
        return
    if "Last-Event-ID" in (case.headers or {}):
        case.headers["Last-Event-ID"] = ELSEWHERE
    for place in (case.query, case.body):
        if isinstance(place, dict):
            place.update({name: 0 for name in ("wait", "wait_s") if name in place})
    _lead_to_job(case, known["fences"])


def _lead_to_job(case: Any, fences: dict[str, Any]) -> None:
    parts, body = case.path_parameters or {}, case.body
    wanted = parts.get("job_id")
    if wanted is not None and str(wanted).isdigit():
        parts["job_id"] = int(wanted) % 24 + 1
    if isinstance(body, dict) and isinstance(body.get("fence"), dict):
        body["fence"] = fences.get(str(parts.get("job_id")), body["fence"])


if os.environ.get("SCHEMATHESIS_HOOKS") == __name__:
    import schemathesis

    schemathesis.hook(before_call)
