"""Every metric by name: what kind of number it is, its labels, what it tells. The guide's table is made of this."""

from typing import Literal, NamedTuple


class Family(NamedTuple):
    name: str
    type: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    what: str


CLAIMS = "holdfast_claims_total"
CLAIM_CONFLICTS = "holdfast_claim_conflicts_total"
LEASE_RENEWALS = "holdfast_lease_renewals_total"
LEASE_EXPIRIES = "holdfast_lease_expiries_total"
RETRIES = "holdfast_retries_total"
FAILURES = "holdfast_failures_total"
DEAD_LETTERS = "holdfast_dead_letters_total"
ENQUEUED = "holdfast_enqueued_total"
COMPLETED = "holdfast_completed_total"
REFUSALS = "holdfast_refusals_total"
FENCES_LOST = "holdfast_fences_lost_total"
WAIT = "holdfast_wait_seconds"
RUN = "holdfast_run_seconds"
LEDGER_EVENTS = "holdfast_ledger_events_total"
LEDGER_ENDED = "holdfast_ledger_ended_total"
LEDGER_WAIT = "holdfast_ledger_wait_seconds"
LEDGER_RUN = "holdfast_ledger_run_seconds"
JOBS = "holdfast_jobs"
UP = "holdfast_ledger_up"

COUNTERS = (
    Family(ENQUEUED, "counter", ("kind",), "jobs made by an enqueue or a replay; one found by its dedupe key is not new"),
    Family(CLAIMS, "counter", ("kind",), "attempts begun: a worker was given a job"),
    Family(CLAIM_CONFLICTS, "counter", (), "claims by id and starts of tasks refused: another holder has the job, or it waits"),
    Family(LEASE_RENEWALS, "counter", (), "beats that renewed a lease"),
    Family(LEASE_EXPIRIES, "counter", ("reason",), "holders the system gave up on: silent, out of lease, or not moving"),
    Family(RETRIES, "counter", ("kind",), "jobs put back for another attempt; orderly releases are none"),
    Family(FAILURES, "counter", ("kind",), "jobs that ended failed"),
    Family(DEAD_LETTERS, "counter", ("kind", "reason_code"), "jobs that ended dead-lettered"),
    Family(COMPLETED, "counter", ("kind",), "jobs that a worker of this process ran to success"),
    Family(REFUSALS, "counter", ("code",), "commands the ledger said no to, by the error's code"),
    Family(FENCES_LOST, "counter", (), "writes refused because the job had moved on to a newer attempt"),
)
HISTOGRAMS = (
    Family(WAIT, "histogram", ("kind",), "from when a job could be claimed until it was"),
    Family(RUN, "histogram", ("kind", "outcome"), "how long a worker of this process ran a job"),
)
LEDGER_COUNTERS = (
    Family(
        LEDGER_EVENTS,
        "counter",
        ("type",),
        "events of the whole ledger, such as started, resumed and cancelled; a stall for a transient error is `retried`",
    ),
    Family(
        LEDGER_ENDED,
        "counter",
        ("kind", "outcome"),
        "jobs of the whole ledger that ended: succeeded, failed, cancelled or dead_lettered",
    ),
)
LEDGER_HISTOGRAMS = (
    Family(LEDGER_WAIT, "histogram", ("kind",), "from when such a job could be claimed until its last attempt was"),
    Family(LEDGER_RUN, "histogram", ("kind", "outcome"), "from the start of its last attempt to its end"),
)
"""From the ledger's own events and times, whichever process, agent or command made them."""
GAUGES = (
    Family(f"{WAIT}_p50", "gauge", ("kind",), "half of the waits were no longer; estimated, since the process began"),
    Family(f"{WAIT}_p95", "gauge", ("kind",), "nineteen of twenty waits were no longer; likewise"),
    Family(f"{RUN}_p50", "gauge", ("kind",), "half of the runs were no longer; likewise"),
    Family(f"{RUN}_p95", "gauge", ("kind",), "nineteen of twenty runs were no longer; likewise"),
    Family(f"{LEDGER_WAIT}_p50", "gauge", ("kind",), "half of the waits of jobs that ended were no longer; likewise"),
    Family(f"{LEDGER_WAIT}_p95", "gauge", ("kind",), "nineteen of twenty were no longer; likewise"),
    Family(f"{LEDGER_RUN}_p50", "gauge", ("kind",), "half of the runs of jobs that ended were no longer; likewise"),
    Family(f"{LEDGER_RUN}_p95", "gauge", ("kind",), "nineteen of twenty were no longer; likewise"),
    Family(JOBS, "gauge", ("queue", "status"), "jobs in the ledger, at most five seconds old"),
    Family(UP, "gauge", (), "1 where the ledger could be read within the last five seconds, else 0"),
)
FAMILIES = (*COUNTERS, *HISTOGRAMS, *LEDGER_COUNTERS, *LEDGER_HISTOGRAMS, *GAUGES)
