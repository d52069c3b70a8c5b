"""A worker whose machine's clock is wrong by some seconds. Prints the answers of the ledger."""

import json
import sys
import time

import holdfast


def main(url: str, wrong_by: int) -> None:
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + wrong_by
    time.time_ns = lambda: real_time_ns() + wrong_by * 1_000_000_000
    with holdfast.open(url) as ledger:
        swept = ledger.sweep()
        [job] = ledger.claim("wrong")
        started = ledger.start(job.fence)
        beat = ledger.heartbeat(job.fence, progress=1)
        lease = ledger.get(job.id).claim_expires_at
        made = ledger.enqueue("made", queue="other", delay=10)
        failed = ledger.claim("wrong", start=True)[0]
        ledger.release(failed.fence)
        ledger.complete(job.fence)
        swept_again = ledger.sweep()
    times = [job.claim_expires_at, started.at, beat.lease_expires_at, lease, made.available_at, made.created_at]
    sys.stdout.write(json.dumps([swept, swept_again, job.id, *(at.timestamp() if at else None for at in times)]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
