"""An explanation, for an agent that could claim the job itself."""

import msgspec

from holdfast.core.explain import Explanation, Situation
from holdfast.core.explain.shapes import Remedy

CLAIMABLE = (Situation.NO_WORKER, Situation.READY, Situation.REQUEUED, Situation.QUEUED_BEHIND)
NO_WORKER = "o worker for it is there:"
FOR_WORKERS = ("holdfast worker run", "holdfast resume")


def for_agents(found: Explanation) -> Explanation:
    """That no worker is there is nothing to whoever asks: it is the last thing that is said of a job, and is left out."""
    said = found.text
    for start in (f" Besides: n{NO_WORKER}", f" N{NO_WORKER}"):
        said = said.partition(start)[0]
    commands = [one for one in found.commands if not one.command.startswith(FOR_WORKERS)]
    if found.situation in CLAIMABLE:
        said = f"{said} You can claim it: call claim_job with id {found.job_id}."
        commands.insert(0, Remedy(f"claim_job with id {found.job_id}", "claims and starts it for you"))
    return msgspec.structs.replace(found, text=said, commands=commands)
