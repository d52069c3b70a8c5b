"""Any program as a supervised one: restarted within limits that outlive its supervisor, and ended with all it has started."""

from holdfast.supervise.looking import Ending, Looking, Voice
from holdfast.supervise.policy import RunPolicy, run_policy
from holdfast.supervise.run import ResetNeeded
from holdfast.supervise.supervisor import Supervisor

__all__ = ["Ending", "Looking", "ResetNeeded", "RunPolicy", "Supervisor", "Voice", "run_policy"]
