"""Resources: a job in full, its history page by page, and how many jobs there are."""

import re
from collections.abc import Callable
from typing import Any

import mcp_types as types
import msgspec

from holdfast.agent import look, past
from holdfast.core import limits
from holdfast.errors import NotFound
from holdfast.ledger import Ledger

JSON = "application/json"
COUNTS = "holdfast://counts"
_JOB = re.compile(r"holdfast://jobs/([1-9][0-9]{0,17})")
_EVENTS = re.compile(r"holdfast://jobs/([1-9][0-9]{0,17})/events(?:\?after=([0-9]{1,18}))?")

RESOURCES = [
    types.Resource(
        uri=COUNTS,
        name="counts",
        title="Counts",
        description="How many jobs of each status there are, by queue.",
        mime_type=JSON,
    )
]
TEMPLATES = [
    types.ResourceTemplate(
        uri_template="holdfast://jobs/{id}",
        name="job",
        title="A job",
        description="All about one job, with its contents in full.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        uri_template="holdfast://jobs/{id}/events{?after}",
        name="events",
        title="A job's history",
        description=f"What happened to a job, the oldest first, {limits.MCP_PAGE_MAX} a page; `next` is the "
        "address of the next one. `after` is a position in the ledger, not a rev.",
        mime_type=JSON,
    ),
]


def read(ledger: Ledger, uri: str) -> str:
    """A resource as JSON. Raises not_found for an address that is none."""
    for pattern, reader in _READERS:
        if found := pattern.fullmatch(uri):
            return msgspec.json.encode(reader(ledger, *found.groups())).decode()
    raise NotFound(f"there is no resource {uri!r:.200}", uri=uri[:200])


def _job(ledger: Ledger, id_: str) -> Any:
    return look(ledger, int(id_))


def _events(ledger: Ledger, id_: str, after: str | None) -> Any:
    page = past(ledger, int(id_), after=int(after or 0), limit=limits.MCP_PAGE_MAX)
    more = None if page.next_after is None else f"holdfast://jobs/{id_}/events?after={page.next_after}"
    return {**msgspec.structs.asdict(page), "next": more}


def _counts(ledger: Ledger) -> Any:
    return {"counts": ledger.counts(max_age=1)}


_READERS: tuple[tuple[re.Pattern[str], Callable[..., Any]], ...] = (
    (_JOB, _job),
    (_EVENTS, _events),
    (re.compile(re.escape(COUNTS)), _counts),
)
