"""Signed heartbeats: their extra cost for the ledger, with the check of signatures, and the cost of signing."""

import time
from collections.abc import Callable

import holdfast
from bench.places import Host
from bench.report import Heading, Row
from bench.rounds import median, take_turns
from bench.sizes import Sizes
from bench.work import KIND
from holdfast import Fence, HoldfastError, Ledger
from holdfast.core.model import Actor, EventType, Role
from holdfast.proof.keys import KeyFile
from holdfast.proof.statements import EMPTY_SHA256, Statement, encode_statement, statement_message

LEASES = 1_000
WORKER = "robot"
HEADING = Heading(
    "A signed beat beside a plain one, 1,000 leases at once; then signing itself, which is not the ledger's to pay",
    ours="signed",
    base="plain",
    judged="growth",
    unit=" µs",
)
TARGET_US = 150.0


def measure(host: Host, sizes: Sizes) -> list[Row]:
    server, robot = holdfast.draw_key("server", "bench"), holdfast.draw_key("worker", WORKER)
    with host.place() as place, holdfast.open(place.url, keys=[server, robot]) as ledger:
        for key in (server, robot):
            ledger.enrol_key(key.public, role=key.role, name=key.name)
        plain, signed = _hold(ledger, "plain", "none"), _hold(ledger, "signed", "liveness")
        place.settle()
        _beat(ledger, plain)
        _beat(ledger, signed)
        whole, base, signing = take_turns(
            sizes.beats,
            lambda _: _each_us(lambda: _beat(ledger, signed)),
            lambda _: _each_us(lambda: _beat(ledger, plain)),
            lambda _: _each_us(lambda: _sign(ledger, robot, signed)),
        )
        written = place.events("heartbeat")
        assert written == 2 * LEASES * (1 + sizes.beats)
    rounds = {"signed, with signing": whole, "plain": base, "signing": signing}
    plainly, to_sign = median(base), median(signing)
    return [
        Row(host.name, median(whole) - to_sign, plainly, TARGET_US, written, rounds),
        Row(f"{host.name}, signing", plainly + to_sign, plainly, None, written, rounds),
    ]


def _hold(ledger: Ledger, queue: str, signed: str) -> list[Fence]:
    policy = {"signed": signed, "lease_ttl": "1h"}
    ledger.enqueue_many([{"kind": KIND, "queue": queue, "args": {"n": n}, "policy": policy} for n in range(LEASES)])
    return [job.fence for job in ledger.claim(WORKER, [queue], limit=LEASES, start=True)]


def _beat(ledger: Ledger, fences: list[Fence]) -> None:
    refused = [answer for answer in ledger.heartbeat_many(fences) if isinstance(answer, HoldfastError)]
    assert not refused, refused[0]


def _sign(ledger: Ledger, key: KeyFile, fences: list[Fence]) -> None:
    """The worker's part of a signed heartbeat: a statement and its signature."""
    assert key.secret is not None
    for number, fence in enumerate(fences):
        holder, at = Actor(Role.WORKER, fence.worker, fence.incarnation), time.time_ns() // 1_000
        beat = Statement(
            ledger=ledger.id,
            job_id=fence.job_id,
            attempt=fence.attempt,
            type=EventType.HEARTBEAT,
            actor=holder,
            at=at,
            counter=at + number,
            payload_sha256=EMPTY_SHA256,
        )
        key.secret.sign(statement_message(encode_statement(beat)))


def _each_us(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000_000 / LEASES
