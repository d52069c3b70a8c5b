"""Any program as a supervised one: restarted within limits that outlive its supervisor, and ended with all it has started."""

from holdfast.supervise.run import ResetNeeded, RunPolicy, run_policy
from holdfast.supervise.supervisor import RunObserver, RunOutcome, Supervisor

__all__ = ["ResetNeeded", "RunObserver", "RunOutcome", "RunPolicy", "Supervisor", "run_policy"]
