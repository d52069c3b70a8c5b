"""Run every part that ticks or waits by the monotonic clock, with real jobs, and print what each has done.

No answer depends on the clock: a machine that has just started and one that has been up for years answer the same.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import holdfast
from holdfast import App, Context
from holdfast.agent import Agent
from holdfast.mcp.sessions import ClientSessions, SessionKey, SessionLeases
from holdfast.services import CallableSink, FileAnchor, Message, Sealer
from tests.support.sealing import drawn, enrol
from tests.support.waiting import wait_until

TIGHT: dict[str, Any] = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "backoff_base": 0, "attempts_max": 2}
LONG = "10m"
"""Longer than a test waits. A part that is due at the start must not wait for this long."""
FAILS_TWICE = "echo >> starts; test $(wc -l < starts) -gt 2"
HANGS_ONCE = "test -e hung || { touch hung; exec sleep 600; }"


def holdfast_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *words]


def worker(url: str) -> dict[str, Any]:
    """A crashed holder's job, a progress report, a timeout, a delayed job and a sink."""
    app, delivered = App(url), set[int]()
    for kind in ("left_behind", "steps", "slow"):
        app.ledger.set_policy(kind, **TIGHT)

    @app.handler()
    def steps(job: Context) -> str:
        job.progress(7, stage="counting")
        wait_until(lambda: app.ledger.get(job.job.id).progress == 7, what="the progress report")
        return "done"

    @app.handler(timeout=0.2)
    def slow(job: Context) -> None:
        wait_until(lambda: job.cancelled, what="the timeout")

    @app.handler()
    def left_behind() -> str:
        return "reclaimed"

    def tell(message: Message) -> None:
        data = message.as_dict()["data"]
        if data["type"] in ("succeeded", "dead_lettered"):
            delivered.add(data["job_id"])

    app.sinks.append(CallableSink(tell, start="beginning"))
    crashed = app.enqueue(left_behind)
    app.ledger.claim("crashed", kinds=["left_behind"], start=True)
    jobs = [crashed, app.enqueue(steps), app.enqueue(slow), app.options(delay=0.5).enqueue(left_behind)]
    serving = app.worker(name="w", shutdown_timeout=0, relay_duty_ttl=LONG)
    serving.start()
    ended = [app.ledger.wait(job.id, timeout=30) for job in jobs]
    wait_until(lambda: delivered >= {job.id for job in jobs}, what="the sink")
    serving.close()
    app.close()
    return {"ended": [(job.status, job.attempt, job.result) for job in ended], "delivered": True}


def sealer(url: str) -> dict[str, Any]:
    key = drawn()
    with holdfast.open(url, keys=[key]) as ledger, tempfile.TemporaryDirectory() as folder:
        enrol(ledger, key)
        anchor, stop = Path(folder) / "heads", threading.Event()
        sealing = Sealer(ledger, every="1s", anchors=[FileAnchor(anchor)], anchor_every=LONG, duty_ttl=LONG)
        thread = threading.Thread(target=sealing.run, args=(stop,))
        thread.start()
        wait_until(anchor.exists, what="the first anchored head")
        stop.set()
        thread.join(30)
        return {"anchored": True, "ended": not thread.is_alive()}


def supervisor(url: str) -> dict[str, Any]:
    """A program that fails twice, and one that hangs once and is killed."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder}
        for name, script in (("fails", FAILS_TWICE), ("hangs", HANGS_ONCE)):
            limits = ["--backoff", "10ms", "--stall-timeout", "1s", "--grace", "1s"]
            command = holdfast_command("supervise", "--name", name, "--json", "--db", url, *limits, "--", "sh", "-c", script)
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)
            over = json.loads(done.stdout.splitlines()[-1])
            found[name] = [done.returncode, over["data"]["reason"], over["data"]["restarts"]]
    return found


def keeper(url: str) -> dict[str, Any]:
    """A lease that is renewed while its client is active, and that expires when the client is idle."""
    with holdfast.open(url) as ledger:
        job, sessions = ledger.enqueue("think", queue="agents"), ClientSessions(ledger, time.monotonic)
        agent = Agent(ledger, "ada", session="s1")
        with SessionLeases(sessions, 1.5, keep=False):
            sessions.track(agent, agent.start(job.id, ttl=1))
            wait_until(lambda: len(ledger.events(job.id, types=["heartbeat"])) >= 2, what="beats of the keeper")
            wait_until(lambda: sessions.attempt(SessionKey("ada", "s1"), job.id) is None, what="the end of an idle session")
        wait_until(lambda: ledger.sweep() is not None and ledger.get(job.id).status == "queued", what="the end of the lease")
        return {"beaten": True, "requeued": True}


def waits(url: str) -> dict[str, Any]:
    """Waits of a caller and of the command line."""
    with holdfast.open(url) as ledger:
        job = ledger.enqueue("wait", queue="nowhere")
        waited = ledger.wait(job.id, timeout=0.2).status
        followed = len(list(ledger.follow(ledger.position() + 1_000_000, timeout=0.2)))
        command = holdfast_command("events", "tail", "--json", "--job", str(job.id), "--after", "0", "--db", url)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            seen = [json.loads(tail.stdout.readline())["data"]["event"]["type"]]
            ledger.cancel(job.id)
            seen.append(json.loads(tail.stdout.readline())["data"]["event"]["type"])
            tail.send_signal(signal.SIGINT)
            code = tail.wait(30)
        return {"waited": waited, "followed": followed, "tail": [*seen, code]}


def demo(url: str) -> dict[str, Any]:
    """Worker processes, one of which is killed."""
    done = subprocess.run(holdfast_command("demo", "--db", url), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return {"code": done.returncode}


PARTS = (worker, sealer, supervisor, keeper, waits, demo)


def main() -> None:
    clock, url = time.monotonic(), sys.argv[1]
    logging.disable()
    holdfast.open(url).close()  # its tables are created once
    with ThreadPoolExecutor(len(PARTS)) as pool:
        answers = {part.__name__: pool.submit(part, url) for part in PARTS}
        try:
            found = {name: answer.result() for name, answer in answers.items()}
        except BaseException:  # noqa: BLE001 - a part that failed has left threads that never end
            traceback.print_exc()
            os._exit(1)
    sys.stdout.write(json.dumps({"clock": clock, **found}) + "\n")


if __name__ == "__main__":
    main()
