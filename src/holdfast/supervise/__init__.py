"""Supervise any program: restart it within limits that are kept in the ledger, and end it with all the processes it started."""

from holdfast.supervise.run import ResetNeeded, RunPolicy, run_policy
from holdfast.supervise.supervisor import RunObserver, RunOutcome, Supervisor

__all__ = ["ResetNeeded", "RunObserver", "RunOutcome", "RunPolicy", "Supervisor", "run_policy"]
