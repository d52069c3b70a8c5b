"""A ledger with markup in every field that any caller can fill. Each field has a text of its own."""

from typing import Any

import msgspec

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.ledger.verbs.services import RunBody
from holdfast.services import CallableSink, HistoryService, Relay
from holdfast.testing import ManualClock
from tests.browser.sample import claim

BIDI = "a\u202eb"
LONG = "x" * 10_000


def markup(field: str) -> str:
    """Return a text that would run a script if it was taken for markup."""
    return f"<img src=x onerror=window.hacked='{field}'><script>window.hacked=1</script>'\"`${{}}"


def shown(field: str) -> str:
    """Return the part of the text that a page shows, also if it cuts the rest."""
    return f"<img src=x onerror=window.hacked='{field}'>"


QUEUE, KIND, WORKER = markup("queue"), markup("kind"), markup("worker")
GROUP, KEYED = markup("group"), markup("keyed")


def fill(ledger: Ledger, clock: ManualClock) -> None:
    """Job 1 has succeeded, 2 has failed, 3 is assisted, 4 is a dead letter, 5 is an agent's task, 6 is cancelled."""
    ledger.set_policy(kind=KIND, attempts_max=1)
    ledger.set_policy(tier=markup("tier"), attempts_max=2)
    args = {markup("key"): markup("args"), "bidi": BIDI, "long": LONG}
    flow = _flow(ledger)
    for number in range(6):
        key = f"{markup('dedupe')}{number}"
        more = flow if number == 5 else {}
        ledger.enqueue(KIND, args, queue=QUEUE, correlation_id=markup("correlation"), dedupe_key=key, **more)
    _sink(ledger, clock)
    ledger.complete(_held(ledger), {"result": markup("result")})
    error = {"type": markup("type"), "message": markup("message") + BIDI, "traceback": markup("traceback") * 20}
    ledger.fail(_held(ledger), error, retryable=False)
    held = claim(ledger, QUEUE, WORKER)
    undo = {"kind": markup("undo"), "args": args}
    ledger.heartbeat(held, stage=markup("stage")[:100], checkpoint={"page": markup("checkpoint")}, undo=undo)
    ledger.heartbeat(held, assist_requested=True)
    ledger.assist(held.job_id, actor=markup("assistant"), reason=markup("reason"))
    ledger.fail(_held(ledger), error)
    Agent(ledger, markup("agent"), session=markup("session").replace("#", "")).start(5)
    ledger.cancel(6, reason=markup("cancelled"), actor=markup("canceller"))
    ledger.pause(QUEUE, reason=markup("pause"), actor=markup("pauser"))
    about: dict[str, Any] = {"host": markup("host"), "queues": [QUEUE], "version": markup("version"), "kinds": [KIND]}
    ledger.sign_in(WORKER, incarnation="boot1", body=about)
    ledger.new_token("reader", markup("token"), queues=[markup("token-queue")])
    assert ledger.supervision.take(markup("run"), "h", 15)
    run = RunBody(holder="h", run=1, incarnation="i", program=markup("program"), controller=msgspec.Raw(b"{}"))
    ledger.supervision.keep(markup("run"), run, 15)
    ledger.set_schedule(markup("schedule"), KIND, every="1h", queue=QUEUE, correlation_id=markup("correlation"))
    ledger.pause_schedule(markup("schedule"), actor=markup("pauser"))
    HistoryService(ledger, "test").tick()


def _flow(ledger: Ledger) -> dict[str, Any]:
    """Add limits, weights and a group. Return the options of a job that names them, and that no worker here can claim."""
    ledger.set_limit(markup("limit"), concurrent=1_000, actor=markup("setter"))
    ledger.set_limit(KEYED, concurrent=1_000, by=f"args.{markup('by')}", actor=markup("setter"))
    ledger.set_limit(KEYED, key=markup("limit-key"), concurrent=1)
    ledger.set_queue(QUEUE, weights={markup("partition"): 2})
    then, on_dead = ({"kind": markup(name), "queue": QUEUE} for name in ("then", "on_dead"))
    ledger.group(GROUP, then=then, on_dead=on_dead, actor=markup("maker"))
    routing = {"requires": [markup("label")], "for_worker": WORKER}
    return {"partition": markup("partition"), "limits": {markup("limit"): 1}, "group": GROUP, **routing}


def _held(ledger: Ledger) -> Any:
    return claim(ledger, QUEUE, WORKER)


def _sink(ledger: Ledger, clock: ManualClock) -> None:
    """Add a sink that was given up."""

    def refuse(_: Any) -> None:
        raise OSError(markup("sink-error"))

    with Relay(ledger, [CallableSink(refuse, name=markup("sink"), start="beginning")]) as relay:
        while ledger.sinks()[:1] == [] or ledger.sinks()[0].dead_at is None:
            relay.tick()
            clock.advance(86_400)
