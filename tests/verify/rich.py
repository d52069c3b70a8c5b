"""A ledger with nearly all features: signed and unsigned jobs, stalls and resumes, all kinds of ends, undo jobs, a
replay, rotated and revoked keys, several heads, pruned beats and deleted jobs."""

import io
from datetime import timedelta
from typing import Any, NamedTuple

import holdfast
from holdfast import Ledger
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.contract.builders import claim
from tests.support.signers import ALL_KEYS, SERVER, WORKER, enrol, key

SERVER_2, WORKER_2, OTHER = key("server", "hq", 2), key("worker", "w-1", 2), key("worker", "w-2")
KEYS = (*ALL_KEYS, OTHER, SERVER_2, WORKER_2)
WINDOW = {"resume_window": "60s"}
UNDO = {"kind": "delete", "args": {"id": 1}}


class Exported(NamedTuple):
    """An export, the anchored heads and the exported keys."""

    body: bytes
    anchors: list[str]
    trusted: str
    vkey: str
    ledger_id: str
    jobs: dict[str, int]
    proofs: dict[str, bytes]


class RichLedger:
    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.jobs: dict[str, int] = {}
        self.anchors: list[str] = []

    def begin(self, name: str, kind: str, worker: str = "w-1", **options: Any) -> holdfast.Fence:
        """Enqueue and start a job with this name."""
        self.jobs[name] = self.ledger.enqueue(kind, {"name": name}, queue=name, **options).id
        return self.go_on(name, worker)

    def go_on(self, name: str, worker: str = "w-1") -> holdfast.Fence:
        fence = claim(self.ledger, self.jobs[name], worker).fence
        self.ledger.start(fence)
        return fence

    def seal(self) -> None:
        with Sealer(self.ledger) as sealer:
            sealer.seal_all()
            assert sealer.newest is not None
            self.anchors.append(sealer.newest.note)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)


def filled(ledger: Ledger, clock: ManualClock) -> RichLedger:
    """Fill the ledger. It is exported later."""
    enrol(ledger, [*ALL_KEYS, OTHER])
    ledger.set_policy("live", signed="liveness", **WINDOW)
    ledger.set_policy("sure", signed="all", **WINDOW)
    ledger.set_policy("window", **WINDOW)
    ledger.set_policy("once", attempts_max=1)
    story = RichLedger(ledger, clock)
    _old_times(story)
    _unsigned(story)
    story.seal()
    _signed(story)
    story.seal()
    _ends(story)
    _dependencies(story)
    _rotations(story)
    story.seal()
    ledger.prune(beats_before=clock.now() - timedelta(days=1))
    return story


def _old_times(story: RichLedger) -> None:
    """Jobs whose events were deleted, and one whose beats were pruned."""
    ledger = story.ledger
    fence = story.begin("gone", "plain")
    ledger.heartbeat(fence, stage="A", progress=1)
    ledger.complete(fence, 1)
    pruned = story.begin("pruned", "window")
    for number in range(3):
        story.wait(1)
        ledger.heartbeat(pruned, stage="A", progress=number)
    story.seal()
    story.wait(40)
    ledger.sweep()
    story.wait(3 * 86_400)
    ledger.prune(jobs_before=story.clock.now() - timedelta(days=1))


def _unsigned(story: RichLedger) -> None:
    ledger = story.ledger
    fence = story.begin("plain", "plain", correlation_id="order-7")
    story.wait(1)
    ledger.heartbeat(fence, stage="A", progress=1)
    story.wait(1)
    ledger.heartbeat(fence, progress=2, checkpoint={"at": 2})
    ledger.complete(fence, {"answer": 42})
    fence = story.begin("stalled", "window")
    story.wait(31)
    ledger.sweep()
    story.wait(1)
    ledger.heartbeat(fence)
    ledger.sweep()
    ledger.complete(fence, None)
    story.begin("silent", "window")
    ledger.release(story.begin("released", "plain"))
    ledger.complete(story.go_on("released", "w-2"), 2)


def _signed(story: RichLedger) -> None:
    ledger = story.ledger
    fence = story.begin("live", "live")
    for number in range(3):
        story.wait(1)
        ledger.heartbeat(fence, progress=number)
    story.wait(40)
    ledger.sweep()
    story.wait(1)
    ledger.heartbeat(fence)
    ledger.sweep()
    ledger.complete(fence, "done")
    fence = story.begin("sure", "sure")
    story.wait(1)
    ledger.heartbeat(fence, stage="B")
    ledger.fail(fence, {"message": "not yet"})
    story.wait(120)
    fence = story.go_on("sure", "w-2")
    ledger.heartbeat(fence, stage="C")
    ledger.complete(fence, {"ok": True})
    story.begin("beating", "live")


def _ends(story: RichLedger) -> None:
    ledger = story.ledger
    story.jobs["cancelled"] = ledger.enqueue("plain", {}, queue="cancelled").id
    ledger.cancel(story.jobs["cancelled"], reason="not wanted")
    fence = story.begin("aborted", "plain")
    ledger.assist(story.jobs["aborted"])
    ledger.unassist(story.jobs["aborted"])
    ledger.cancel(story.jobs["aborted"], reason="enough")
    ledger.heartbeat(fence)
    ledger.acknowledge_cancel(fence)
    ledger.fail(story.begin("dead", "plain"), "bad input", retryable=False, reason_code="parse_error", failure_stage="input")
    story.jobs["replay"] = ledger.replay(story.jobs["dead"]).id
    ledger.discard(story.jobs["dead"])
    ledger.fail(story.begin("exhausted", "once"), "again")
    fence = story.begin("undone", "plain")
    ledger.heartbeat(fence, undo=UNDO)
    ledger.fail(fence, "no", retryable=False)
    ledger.sweep()
    story.jobs["undo"] = next(job.id for job in ledger.list(kind="holdfast.undo"))
    ledger.complete(story.go_on("undo"), None)
    ledger.sweep()


def _dependencies(story: RichLedger) -> None:
    """A job that waited for another one, one that ended with its dependency, and one that still waits for two."""
    ledger = story.ledger
    before = None
    for name in ("first", "second", "third"):
        before = story.jobs[name] = ledger.enqueue("plain", {}, queue=name, depends_on=[before] if before else None).id
    waits_for = [story.jobs["silent"], story.jobs["beating"]]
    story.jobs["waiting"] = ledger.enqueue("plain", {}, queue="waiting", depends_on=waits_for, on_dependency_failure="wait").id
    ledger.complete(story.go_on("first"), 1)
    ledger.fail(story.go_on("second"), "no", retryable=False)
    ledger.sweep()


def _rotations(story: RichLedger) -> None:
    """New keys for the server and for a worker, in the middle of a job."""
    ledger = story.ledger
    fence = story.begin("rotated", "live")
    story.wait(1)
    ledger.heartbeat(fence, progress=1)
    story.seal()
    ledger.rotate_key(SERVER.key_id, SERVER_2.public)
    ledger.rotate_key(WORKER.key_id, WORKER_2.public)
    story.wait(1)
    ledger.heartbeat(fence, progress=2)


def exported(url: str) -> Exported:
    from holdfast.cli.key import encode_document, public_keys

    clock = ManualClock()
    with holdfast.open(url, clock=clock, keys=list(KEYS), actor="ann") as ledger:
        story = filled(ledger, clock)
        file = io.BytesIO()
        ledger.export(file.write)
        proofs = {}
        for name in ("plain", "sure", "live", "rotated"):
            proof = io.BytesIO()
            ledger.prove(story.jobs[name], proof.write)
            proofs[name] = proof.getvalue()
        document = public_keys(ledger)
        return Exported(
            file.getvalue(), story.anchors, encode_document(document), document["vkey"], ledger.id, story.jobs, proofs
        )
