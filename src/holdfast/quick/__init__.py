"""`holdfast task heartbeat` on SQLite, for the everyday case: what the command line does, without most of what it reads for that.

An agent beats from the command line all day, and starting Python takes longer than the beat itself: so nothing is imported here
that one plain beat does not need. Like the hot statements, this is a compiled form of `decide`. Its guards are those of an
everyday beat, and whatever does not match them (an odd option, a repeated request, a lease that is over, a policy that wants
signatures) is left to the command line before anything is changed. A test holds the two against each other.
"""

import apsw

from holdfast.quick.typed import NotPlain, asked, encode
from holdfast.quick.written import recorded


def beat(arguments: list[str]) -> str | None:
    """What to print once the beat is recorded; None where nothing was done and the command line must see to it."""
    try:
        wish = asked(arguments)
        task = recorded(wish)
    except (NotPlain, OSError, apsw.Error):
        return None
    if wish.as_json:
        return encode({"schema_version": "v1", "success": True, "data": {"task": task}, "request_id": wish.request_id}) + "\n"
    told = " Somebody wants it cancelled: stop, and release it." if task["cancel_requested"] else ""
    until = (task["claim_expires_at"].rstrip("Z") + ".000")[:23]
    return f"Task {wish.id} is {wish.agent}'s until {until}Z.{told}\n"
