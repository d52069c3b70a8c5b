"""Any program as a supervised one: restarted within limits that outlive its supervisor, and ended with all it has started."""

from holdfast.supervise.looking import Ending, Voice
from holdfast.supervise.policy import RunPolicy, run_policy
from holdfast.supervise.run import ResetNeeded
from holdfast.supervise.supervisor import Supervisor

__all__ = ["Ending", "ResetNeeded", "RunPolicy", "Supervisor", "Voice", "run_policy"]
