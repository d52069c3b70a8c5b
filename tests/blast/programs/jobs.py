"""A worker of the fleet: `python -m tests.blast.programs.jobs NAME QUEUE`, with HOLDFAST_URL and perhaps BLAST_CLOCK set."""

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from holdfast import App, Context, HoldfastError, PolicyFields
from tests.blast.place import Place

LEASE: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 5, "lease_ttl": 5, "backoff_base": 0, "attempts_max": 100}
"""A beat every second, a lease of five."""


class SteppedClock:
    """The machine's clock plus the seconds in a file. The monotonic clock is the machine's own."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(self._path.read_text()))

    def monotonic(self) -> float:
        return time.monotonic()


def clock() -> SteppedClock | None:
    path = os.environ.get("BLAST_CLOCK")
    return None if path is None else SteppedClock(path)


def wait_for(job: Context, path: str) -> None:
    """Wait until the file exists or the attempt has lost its job. Do not call the ledger."""
    while not Path(path).exists() and not job.cancelled:
        time.sleep(0.05)


def app_for(queue: str) -> App:
    """An app with all handlers, for the jobs of one queue."""
    app = App(os.environ["HOLDFAST_URL"], clock=clock())

    def waits_for_go(job: Context) -> None:
        wait_for(job, job.job.args["go"])

    @app.handler(queue=queue, policy=LEASE)
    def hold(job: Context, go: str) -> int:
        """Run until the test allows the end."""
        wait_for(job, go)
        return job.job.attempt

    @app.handler(queue=queue, policy=LEASE, checks=waits_for_go)
    def hold_claimed(job: Context, go: str) -> int:
        """Stay claimed until the test allows the end."""
        return job.job.attempt

    @app.handler(queue=queue, policy=LEASE)
    def quick(job: Context) -> int:
        return job.job.attempt

    @app.handler(queue=queue, policy=LEASE, timeout="20s")
    def wait_for_itself(job: Context, way: str) -> str:
        """Lock the job's own row in another open transaction, then send a heartbeat."""
        place = Place.of(os.environ["HOLDFAST_URL"])
        with psycopg.connect(place.server) as connection:
            if way == "dependent":
                app.ledger.enqueue("quick", queue=queue, depends_on=[job.job.id], connection=connection)
            else:
                connection.execute(f"SELECT FROM {place.schema}.jobs WHERE id = %s FOR UPDATE", [job.job.id])
            try:
                job.checkpoint({"page": 1})
            except HoldfastError as error:
                return f"{error.code}: {error.message}"
            finally:
                connection.rollback()
        return "kept"

    @app.handler(queue=queue, policy={**LEASE, "attempts_max": 1}, timeout="2s")
    def outlast(job: Context) -> str:
        """Lock the job's own row and run past the time limit, until a stop is requested."""
        place, begun = Place.of(os.environ["HOLDFAST_URL"]), time.monotonic()
        with psycopg.connect(place.server) as connection:
            connection.execute(f"SELECT FROM {place.schema}.jobs WHERE id = %s FOR UPDATE", [job.job.id])
            while not job.cancelled and time.monotonic() < begun + 10:
                time.sleep(0.05)
        return "asked to stop" if job.cancelled else "never asked to stop"

    return app


if __name__ == "__main__":
    name, served = sys.argv[1:]
    made = app_for(served)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.exit(0 if made.work(name=name, threads=20) else 1)
