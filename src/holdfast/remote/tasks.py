"""The verbs of agents on a server. Each is one request there, as it is one transaction on a store."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.model import Actor
from holdfast.errors import HoldfastError
from holdfast.ledger import metrics, validate
from holdfast.ledger.transaction import StepsAnswer
from holdfast.remote import items
from holdfast.remote.items import path
from holdfast.remote.pipeline import RemotePipeline
from holdfast.remote.transport import Transport
from holdfast.watch.process import Metrics

_results = msgspec.json.Decoder(dict[str, msgspec.Raw])
Body = dict[str, Any]


class _OneTask(msgspec.Struct, frozen=True):
    task: msgspec.Raw


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


def _fail(error: str, retryable: bool, code: Any, stage: Any, after_us: int | None) -> Body:
    after = items.microseconds(after_us)
    return {"error": _raw(error), "retryable": retryable, "reason_code": code, "failure_stage": stage, "retry_after": after}


_ON_TASK: dict[str, Callable[..., Body]] = {
    "start": lambda ttl_ms: {"ttl": items.milliseconds(ttl_ms)},
    "heartbeat": lambda stage, progress, checkpoint: {"stage": stage, "progress": progress, "checkpoint": _raw(checkpoint)},
    "complete": lambda payload: {"result": _results.decode(payload)["result"]},
    "fail": _fail,
    "release": lambda *reason: {"reason": reason[0] if reason else None},
}
"""The body of each verb on a task, from what the agent's verb has checked. Its id and attempt come before."""
_OTHERS: dict[str, Callable[..., Body]] = {
    "resume": lambda ttl_ms, queues, kinds: {"ttl": items.milliseconds(ttl_ms), "queues": queues, "kinds": kinds},
    "gc": lambda limit: {"limit": limit},
}


class RemoteSteps:
    """Runs the verbs of agents on a server. It takes the place of the ledger's StepTransactions."""

    def __init__(self, pipeline: RemotePipeline, transport: Transport, nonce: Callable[[], str], counters: Metrics) -> None:
        self._pipeline = pipeline
        self._transport = transport
        self._nonce = nonce
        self._metrics = counters

    def run(
        self,
        verb: str,
        who: Actor,
        body: tuple[Any, ...],
        work: Any,
        *,
        request_id: str | None = None,
        labels: tuple[str, ...] = (),
    ) -> StepsAnswer:
        """Send a verb. `body` is what distinguishes one request from another. Verbs that claim a task also send `labels`."""
        key = validate.request_id(request_id) or self._nonce()
        name, (_, *given) = verb.removeprefix("task_"), body
        has = {"labels": labels} if labels and name in ("start", "resume") else {}
        try:
            if name in _OTHERS:
                sent = items.without_none(**_OTHERS[name](*given), **has)
                answer = self._pipeline.call("POST", path("tasks", name), msgspec.Raw, actor=who, body=sent, key=key)
            else:
                id_, attempt, *rest = given
                sent = items.without_none(**_ON_TASK[name](*rest), attempt=attempt, **has)
                found = self._pipeline.call("POST", path("tasks", id_, name), _OneTask, actor=who, body=sent, key=key)
                answer = found.task
        except HoldfastError as error:
            if name == "start":
                metrics.count_conflict(self._metrics, error)
            raise
        return StepsAnswer(bytes(answer), replayed=False)

    def read(self, verb: str, job_id: int, query: Body, work: Any) -> bytes:
        """Read a task or its history."""
        parts = ("tasks", job_id) if verb == "task" else ("tasks", job_id, verb)
        return bytes(self._transport.call("GET", path(*parts), msgspec.Raw, query=query))
