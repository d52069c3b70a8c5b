"""Offline verification of an export: without signatures, and with one on every heartbeat."""

import io
from collections.abc import Callable

import holdfast
from bench import ours
from bench.places import Host, Place
from bench.report import Heading, Row
from bench.rounds import median, timed
from bench.sizes import Sizes
from holdfast.ledger import Ledger
from holdfast.proof.export_format import EndLine
from holdfast.proof.keys import KeyFile
from holdfast.proof.verify import TrustedKeys, VerificationReport, VerifyOptions, verify_file
from holdfast.services.sealer import Sealer

HEADING = Heading("Verifying an export, in events/s", ours="verify", base="export", judged="rate")
PLAIN_TARGET, SIGNED_TARGET = 20_000.0, 5_000.0
LEASES = 200
ROUNDS = 3


def measure(host: Host, sizes: Sizes) -> list[Row]:
    plain = _row(host, "unsigned", PLAIN_TARGET, lambda ledger: _drained(ledger, sizes.jobs // 4))
    signed = _row(host, "signed", SIGNED_TARGET, lambda ledger: _beaten(ledger, max(1, sizes.jobs // 5 // LEASES)))
    return [plain, signed]


def _drained(ledger: Ledger, jobs: int) -> None:
    """Four events a job: enqueued, claimed, started, succeeded."""
    ours.enqueue(ledger, ours.items("plain", jobs))
    ours.drain(ledger, "plain", jobs)


def _beaten(ledger: Ledger, beats: int) -> None:
    """Nearly all events are signed heartbeats."""
    ledger.set_policy("signed", signed="liveness", heartbeat_interval="1h", lease_ttl="1h")
    ledger.enqueue_many([{"kind": "signed", "queue": "signed"} for _ in range(LEASES)])
    fences = ours.claim(ledger, "signed", LEASES)
    for number in range(beats):
        ledger.heartbeat_many([(fence, {"progress": number}) for fence in fences])


def _row(host: Host, what: str, target: float, fill: Callable[[Ledger], None]) -> Row:
    server, worker = holdfast.draw_key("server", "bench"), holdfast.draw_key("worker", "bench")
    with host.place() as place:
        body, made, export_rates = _exported(place, [server, worker], fill)
    trusted = TrustedKeys(f"holdfast/{made}", server=server.public)
    verdicts: list[VerificationReport] = []
    seconds = [1 / timed(1, lambda: verdicts.append(_verified(body, trusted))) for _ in range(ROUNDS)]
    verdict = verdicts[0]
    rates = [verdict.checked.events / taken for taken in seconds]
    # Only the first events of a job are not signed: enqueued, claimed, started; and the first job of the ledger.
    assert verdict.intact and (what == "unsigned" or verdict.checked.signatures + 4 * LEASES > verdict.checked.events)
    rounds = {"verify": rates, "export": export_rates}
    return Row(f"{host.name}, {what}", median(rates), median(export_rates), target, verdict.checked.events, rounds)


def _exported(place: Place, keys: list[KeyFile], fill: Callable[[Ledger], None]) -> tuple[bytes, str, list[float]]:
    with holdfast.open(place.url, keys=keys) as ledger:
        for key in keys:
            ledger.enrol_key(key.public, role=key.role, name=key.name)
        fill(ledger)
        with Sealer(ledger) as sealer:
            sealer.seal_all()
        place.settle()
        out = io.BytesIO()
        made: list[EndLine] = []
        rate = timed(1, lambda: made.append(ledger.export(out.write)))
        return out.getvalue(), ledger.id, [rate * made[0].events]


def _verified(body: bytes, trusted: TrustedKeys) -> VerificationReport:
    return verify_file(io.BytesIO(body), VerifyOptions(trusted=trusted))
