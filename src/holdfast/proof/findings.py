"""The findings of a verification and its report."""

import re
from typing import Any

import msgspec

from holdfast.core.text import truncate

SHOWN_CHARACTERS_MAX = 80
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED = re.compile(r"\bObject (missing required|contains unknown) field `(.*?)`", re.DOTALL)

_SHAPE = "a statement of another shape: "


def format_untrusted(value: object) -> str:
    """Return an untrusted value for display: short, and without control characters that a terminal would execute."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        text = str(value)[: SHOWN_CHARACTERS_MAX + 1]
        if not text.strip():
            return "an empty text"
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
        return truncate(text, SHOWN_CHARACTERS_MAX)
    return "a list" if isinstance(value, list) else "an object"


def decode_or_none(body: bytes | str) -> Any:
    """Return the JSON value of `body`, or None if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def describe_decode_error(message: str, value: Any) -> str:
    """Return a decoder's message about `value` in plain words: the field that is wrong, and its value."""
    place = _PLACE.search(message)
    path = [] if place is None else [part for part in place[1].split(".") if part]
    named = _NAMED.search(message)
    if named is not None:
        field = format_untrusted(named[2])
        return f"the field {field} is missing" if named[1] == "missing required" else f"Holdfast has no field {field}"
    if not path:
        return "it is not what Holdfast writes"
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return f"{format_untrusted(path[-1])} is not what Holdfast writes"
        value = value[part]
    return f"its {path[-1]} is {format_untrusted(value)}, which Holdfast does not write there"


def without_decoder_text(detail: str) -> str:
    """Return a finding's detail with the decoder's message at its end put into plain words."""
    start, colon, rest = detail.partition(_SHAPE)
    return start + colon + describe_decode_error(rest, None) if colon else detail


KEPT_MAX = 1_000
"""Findings that are kept with their text. All of them are counted."""
SHOWN_MAX = 20
DETAIL_CHARACTERS_MAX = 400

MEANINGS = {
    "file": "This is not a complete Holdfast file: it was cut off, changed by a program, or is something else.",
    "order": "Lines were moved, repeated or inserted.",
    "count": "Lines were removed or inserted after the export.",
    "policy": "A policy was changed or removed, or the event refers to another one than it did.",
    "gone": "Retention deleted it, or its content is being hidden.",
    "keys": "The keys were changed without authority, or the keys you trust are of another ledger.",
    "key": "It was signed with a key that was not valid there: stolen, revoked, or of another actor.",
    "signature": "The signed content was changed, or it was signed with another key.",
    "statement": "A signature was moved from another event, or the event was changed after it was signed.",
    "counter": "A signed event was used a second time.",
    "skew": "The event was dated back or forward, or a clock was far off.",
    "time": "An event was dated back, or events were put in another order.",
    "signed": "The policy required fewer signatures than you do: only the server states which actor did this.",
    "unsigned": "The signature was removed, or the event was made without the key.",
    "value": "The event was changed in the database, or its line was changed in the file.",
    "deleted": "The event was deleted from the database. Retention deletes whole jobs, never single events.",
    "changed": "This event was changed. Compare it with a backup of the ledger or with an older export.",
    "sealed": "The event was changed together with others, or the line after it was inserted.",
    "tree": "An event in that range was changed, removed or inserted after it was sealed.",
    "head": "The head was changed, or signed with a key that may not sign heads.",
    "anchor": "The ledger was rewritten or cut back after that head was anchored, or the file is older, or of another ledger.",
    "own head": "A job's proof can be compared with its own head only: verify an export against older or newer ones.",
    "leaf": "The event was changed, or was never in the tree.",
    "unsealed": "It is newer than the newest head: no signed head covers it yet.",
    "trust": "The author of the file may have made its keys too, or have stolen one.",
    "fold": "The row was changed without an event, or events were changed.",
    "row": "A job's row was removed or inserted.",
    "rev": "An event of this job was removed or inserted.",
    "attempt": "An actor wrote to an attempt of another worker.",
    "holder": "An actor wrote to an attempt of another worker.",
    "late holder": "A worker wrote after its lease was over.",
    "stalled too early": "The system stalled a job before its limit, or a beat was dated back or removed.",
    "resumed without a beat": "The system resumed a job without a beat, or that beat was removed.",
}
"""The possible causes of each broken rule."""
DEFAULT_MEANING = "The ledger's rules do not allow these events: one of them was changed, inserted or removed."


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem. `line` is its line in the file, or 0 for a problem with a head that the caller gave.

    If only a range of lines is known, it begins at `from_line`.
    """

    line: int
    rule: str
    detail: str
    job_id: int | None = None
    rev: int | None = None
    pos: int | None = None
    from_line: int | None = None
    event: str | None = None
    """The type of the event, if the finding is about one."""

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self.rule, DEFAULT_MEANING)

    def place(self) -> str:
        """Return the place of the finding for display."""
        if self.line == 0:
            return "an older head"
        where = f"line {self.line}" if self.from_line is None else f"lines {self.from_line} to {self.line}"
        if self.pos is not None:
            where += f", position {self.pos}"
        if self.job_id is None:
            return where
        if self.event is not None:
            return f"job {self.job_id}, event {self.rev} ({self.event}), {where}"
        if self.rule == "deleted" and self.rev is not None:
            return f"job {self.job_id}, event {self.rev}, {where}"
        return f"job {self.job_id}, {where}"


class Findings:
    """Collect findings as they come. `first` sorts them."""

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Finding] = []
        self._torn: list[Finding] = []

    def torn(self, line: int, detail: str, job_id: int | None = None, rev: int | None = None, event: str | None = None) -> None:
        """Add a line that cannot be read, or a missing end. Later findings may be consequences of it and are not reported.

        `job_id`, `rev` and `event` are set if the line is about an event.
        """
        self.total += 1
        if len(self._torn) < KEPT_MAX:
            rule = "file" if job_id is None else "value"
            self._torn.append(Finding(line, rule, detail[:DETAIL_CHARACTERS_MAX], job_id, rev, event=event))

    def add(
        self,
        line: int,
        rule: str,
        detail: str,
        *,
        job_id: int | None = None,
        rev: int | None = None,
        pos: int | None = None,
        from_line: int | None = None,
        event: str | None = None,
    ) -> None:
        if self._torn:
            return
        self.total += 1
        if len(self._kept) < KEPT_MAX or rule in ("tree", "head", "anchor", "trust", "changed", "deleted"):
            self._kept.append(Finding(line, rule, detail[:DETAIL_CHARACTERS_MAX], job_id, rev, pos, from_line, event))

    def first(self, count: int = SHOWN_MAX) -> list[Finding]:
        """Return the most important findings first.

        The order is: problems of the file itself, changed and deleted events, the others in the order of the file, older heads.
        A range of lines comes after all findings about jobs.
        """
        last = max((found.line for found in self._kept if found.job_id is not None), default=0)
        return sorted(self._torn + self._kept, key=lambda found: _sort_key(found, last))[:count]


def _sort_key(found: Finding, last: int) -> tuple[bool, bool, bool, int, bool]:
    """Return the sort key. `last` is the last line with a finding about a job."""
    is_range = found.from_line is not None
    line = max(found.line, last) if is_range else found.line
    return found.rule not in ("file", "value"), found.rule not in ("changed", "deleted"), found.line == 0, line, is_range


class CheckedCounts(msgspec.Struct, frozen=True):
    """The numbers of checked things."""

    events: int = 0
    jobs: int = 0
    keys: int = 0
    gone: int = 0
    """Leaves of which only the hash is left."""
    deleted: int = 0
    """Leaves among them that retention did not delete."""
    signatures: int = 0
    leaves: int = 0
    heads: int = 0
    anchors: int = 0
    attempts: int = 0
    unsigned_attempts: int = 0
    """Attempts whose policy requires no signatures."""
    worker_keys: int = 0
    """Keys of workers, including revoked ones."""


class VerificationReport(msgspec.Struct, frozen=True):
    """The result for one file. It is intact if there are no findings."""

    kind: str
    ledger: str | None
    checked: CheckedCounts
    sealed: int
    """Leaves under the newest head."""
    unsealed: int
    """Events and key changes that are newer than the newest head."""
    root: str | None
    """The root of the newest head, in hex."""
    found: int
    """The number of all findings."""
    findings: list[Finding]
    """The most important findings."""

    @property
    def intact(self) -> bool:
        return self.found == 0
