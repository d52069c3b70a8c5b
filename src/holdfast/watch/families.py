"""All metrics: name, type, labels and description. The table in the guide is generated from this."""

from typing import Literal, NamedTuple


class Family(NamedTuple):
    name: str
    type: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    description: str


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
LIMIT_USED = "holdfast_limit_used"
LIMIT_CONCURRENT = "holdfast_limit_concurrent"
LIMIT_KEYS = "holdfast_limit_keys"
LIMIT_WAITING = "holdfast_limit_waiting"
UNROUTABLE = "holdfast_jobs_unroutable"
HTTP_REQUESTS = "holdfast_http_requests_total"
HTTP_SECONDS = "holdfast_http_request_seconds"
CLAIMS_WAITING = "holdfast_http_claims_waiting"
SERVICE_UP = "holdfast_service_up"
SERVICE_ACTIVE = "holdfast_service_active"
WORKERS = "holdfast_workers"
OLDEST_READY = "holdfast_oldest_ready_seconds"
DEAD_LETTERS_WAITING = "holdfast_dead_letters_waiting"
ATTENTION = "holdfast_attention"
FINDINGS = "holdfast_findings"

COUNTERS = (
    Family(ENQUEUED, "counter", ("kind",), "jobs created by an enqueue or a replay; one found by its dedupe key does not count"),
    Family(CLAIMS, "counter", ("kind",), "attempts started by a claim"),
    Family(CLAIM_CONFLICTS, "counter", (), "refused claims by id and starts of tasks: another holder has the job, or it waits"),
    Family(LEASE_RENEWALS, "counter", (), "heartbeats that renewed a lease"),
    Family(LEASE_EXPIRIES, "counter", ("reason",), "jobs stalled by the system: no heartbeat, lease expired, or no progress"),
    Family(RETRIES, "counter", ("kind",), "jobs requeued for another attempt; orderly releases do not count"),
    Family(FAILURES, "counter", ("kind",), "jobs that ended failed"),
    Family(DEAD_LETTERS, "counter", ("kind", "reason_code"), "jobs that ended dead-lettered"),
    Family(COMPLETED, "counter", ("kind",), "jobs completed by a worker of this process"),
    Family(REFUSALS, "counter", ("code",), "commands that the ledger refused, by error code"),
    Family(FENCES_LOST, "counter", (), "writes refused because the job had a newer attempt"),
)
HISTOGRAMS = (
    Family(WAIT, "histogram", ("kind",), "time from when a job could be claimed until its claim"),
    Family(RUN, "histogram", ("kind", "outcome"), "time that a worker of this process ran a job"),
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
    Family(LEDGER_WAIT, "histogram", ("kind",), "time from when a job could be claimed until its claim"),
    Family(LEDGER_RUN, "histogram", ("kind", "outcome"), "time from the start of the last attempt to the end of the job"),
)
"""Counted from the ledger's events, of all processes, agents and commands, since they are counted."""
GAUGES = (
    Family(f"{WAIT}_p50", "gauge", ("kind",), "median of the waits since the process started, within 5 %"),
    Family(f"{WAIT}_p95", "gauge", ("kind",), "95th percentile of the waits since the process started, within 5 %"),
    Family(f"{RUN}_p50", "gauge", ("kind",), "median of the runs since the process started, within 5 %"),
    Family(f"{RUN}_p95", "gauge", ("kind",), "95th percentile of the runs since the process started, within 5 %"),
    Family(f"{LEDGER_WAIT}_p50", "gauge", ("kind",), "median of the waits of the last hour, within 5 %"),
    Family(f"{LEDGER_WAIT}_p95", "gauge", ("kind",), "95th percentile of the waits of the last hour, within 5 %"),
    Family(f"{LEDGER_RUN}_p50", "gauge", ("kind",), "median of the runs of the last hour, within 5 %"),
    Family(f"{LEDGER_RUN}_p95", "gauge", ("kind",), "95th percentile of the runs of the last hour, within 5 %"),
    Family(JOBS, "gauge", ("queue", "status"), "jobs in the ledger"),
    Family(UP, "gauge", (), "1 if the ledger can be read, else 0"),
    Family(LIMIT_USED, "gauge", ("limit",), "units of the limit that are held, over all of its keys"),
    Family(LIMIT_CONCURRENT, "gauge", ("limit",), "units of the limit that may be held at once, for each key"),
    Family(LIMIT_KEYS, "gauge", ("limit",), "keys of the limit that are in use"),
    Family(LIMIT_WAITING, "gauge", ("limit",), "jobs that wait for the limit, at most 1000"),
    Family(UNROUTABLE, "gauge", ("queue",), "jobs whose labels no running worker has, or whose worker is not running"),
)
SERVER_COUNTERS = (
    Family(HTTP_REQUESTS, "counter", ("method", "route", "status"), "requests that this server answered, by the route's pattern"),
)
SERVER_HISTOGRAMS = (
    Family(HTTP_SECONDS, "histogram", ("route",), "time to answer a request; claims that wait and streams last long"),
)
SERVER_GAUGES = (
    Family(CLAIMS_WAITING, "gauge", (), "claims that wait for jobs at this server"),
    Family(
        SERVICE_UP,
        "gauge",
        ("service",),
        "1 if the service of this server works, 0 while it fails; services that are off are missing",
    ),
    Family(
        SERVICE_ACTIVE, "gauge", ("service",), "1 if this server does the work of the service now, 0 while another process does"
    ),
    Family(WORKERS, "gauge", ("state",), "workers by the time since they were last seen: fresh (15 s), late (45 s) or silent"),
    Family(OLDEST_READY, "gauge", ("queue",), "how long the oldest job of the queue could have been claimed"),
    Family(DEAD_LETTERS_WAITING, "gauge", (), "dead letters that are neither replayed nor discarded, counted up to 10,000"),
    Family(ATTENTION, "gauge", (), "jobs and sinks that wait for a person"),
    Family(FINDINGS, "gauge", ("code",), "findings of `holdfast doctor` that need attention"),
)
"""Only servers have them. Those of the ledger are at most five seconds old, and missing while the ledger is out of reach."""
