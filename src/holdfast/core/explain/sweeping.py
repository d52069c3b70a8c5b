"""What is due and not done: is anybody there to do it, and may they?"""

from holdfast.core.explain.shapes import Account, Facts, Situation
from holdfast.core.explain.words import SWEEP, remedy, when
from holdfast.core.model import Micros


def sweeper(facts: Facts) -> str:
    return "whoever sweeps next" if facts.sweeper is None else f"the sweeper, {facts.sweeper}"


def overdue(facts: Facts, due: Micros, now: Micros, *, signed: bool) -> Account | None:
    """Why something that was due is not done; None while it is not due."""
    if now <= due:
        return None
    since = f"A sweep was due {when(due, now)}"
    if signed and not facts.server_key:
        unsigned = f"{since}, but its policy wants the system to sign, and no server key is good: every sweep leaves it alone."
        enrol = remedy("makes and enrols a server key, for whoever sweeps", "key", "new", "main", "--role", "server")
        return Account(Situation.NO_SERVER_KEY, (unsigned,), commands=(enrol,))
    if facts.sweeper is None:
        return Account(Situation.NOBODY_SWEEPS, (f"{since}, and nobody sweeps: no worker has that duty.",), commands=(SWEEP,))
    if signed:
        words = f"{since}. Unless {facts.sweeper}, who sweeps, has a server key, it leaves this job alone."
    else:
        words = f"{since}: {facts.sweeper} does it with its next tick."
    return Account(Situation.STALL_DUE, (words,), commands=(SWEEP,))
