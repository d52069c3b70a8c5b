"""The findings of a verification and its report."""

import re
from typing import Any

import msgspec

SHOWN_CHARACTERS_MAX = 80
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED = re.compile(r"\bObject (missing required|contains unknown) field `(.*?)`", re.DOTALL)

_SHAPE = "a statement of another shape: "


def format_untrusted(value: object) -> str:
    """A value that anybody may have written: short, and without characters that a terminal acts upon."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        text = str(value)[: SHOWN_CHARACTERS_MAX + 1]
        if not text.strip():
            return "an empty text"
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
        return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"
    return "a list" if isinstance(value, list) else "an object"


def decode_or_none(body: bytes | str) -> Any:
    """The JSON in `body`, whatever its shape; None where there is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def describe_decode_error(message: str, value: Any) -> str:
    """What a decoder says of `value`, which has another shape than it should: the field, and what is in it."""
    place = _PLACE.search(message)
    path = [] if place is None else [part for part in place[1].split(".") if part]
    named = _NAMED.search(message)
    if named is not None:
        field = format_untrusted(named[2])
        return f"the field {field} is missing" if named[1] == "missing required" else f"{field} is no field of Holdfast's"
    if not path:
        return "it is not what Holdfast writes"
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return f"{format_untrusted(path[-1])} is not what Holdfast writes"
        value = value[part]
    return f"its {path[-1]} is {format_untrusted(value)}, which Holdfast does not write there"


def without_decoder_text(detail: str) -> str:
    """A rule's words, without those of a decoder at their end."""
    start, colon, rest = detail.partition(_SHAPE)
    return start + colon + describe_decode_error(rest, None) if colon else detail


KEPT_MAX = 1_000
"""Findings that are kept with their text; all of them are counted."""
SHOWN_MAX = 20
DETAIL_CHARACTERS_MAX = 400

MEANINGS = {
    "file": "This is not a whole file of Holdfast's: it was cut off, changed by a program, or is something else.",
    "dialect": "It has no tree, rows, keys or heads to check. Export again without --dialect, and verify that file.",
    "order": "Lines were moved, repeated or put in.",
    "count": "Lines were taken out or put in after the export.",
    "policy": "A policy was changed or taken out, or the event refers to another one than it did.",
    "gone": "Retention took it, or somebody hides what it was.",
    "keys": "Somebody who may not do so has changed who may sign, or the keys you trust are of another ledger.",
    "key": "It was signed with a key that was not good there: stolen, revoked, or of somebody else.",
    "signature": "What was signed was changed, or somebody signed with another key.",
    "statement": "A signature was moved from another event, or the event was changed after it was signed.",
    "counter": "A signed event was used a second time.",
    "skew": "The event was dated back or forward, or a clock was far off.",
    "time": "An event was dated back, or events were put in another order.",
    "signed": "Whoever may set policies wanted less to be signed than you require: who did this is the server's word only.",
    "unsigned": "The signature was taken away, or the event was made by somebody without the key.",
    "value": "The event was changed in the database, or its line was changed in the file.",
    "deleted": "The event was deleted from the database. Retention deletes whole jobs, never single events.",
    "changed": "Somebody has changed this event. Compare it with a backup of the ledger or with an older export.",
    "sealed": "The event was changed together with others, or the line behind it was put in.",
    "tree": "An event in that range was changed, taken out or put in after it was sealed.",
    "head": "The head was changed, or signed by somebody who may not.",
    "anchor": "The ledger was rewritten or cut back after that head was anchored, or the file is older, or of another ledger.",
    "own head": "A job's proof can be compared with its own head only: verify an export against older or newer ones.",
    "leaf": "The event was changed, or was never in the tree.",
    "unsealed": "It is newer than the newest head: nothing vouches for it yet.",
    "trust": "Whoever made the file may have made its keys as well, or have stolen one.",
    "fold": "The row was changed without an event, or events were.",
    "row": "A job's row was taken out or put in.",
    "rev": "An event of this job was taken out or put in.",
    "attempt": "Somebody wrote for an attempt that was not theirs.",
    "holder": "Somebody wrote for an attempt that was not theirs.",
    "late holder": "A worker wrote after its lease was over.",
    "stalled too early": "The system gave up on a worker before its limit, or a beat was dated back or taken out.",
    "resumed without a beat": "The system resumed what had given no sign of life, or that beat was taken out.",
}
"""What a broken rule may mean."""
DEFAULT_MEANING = "The events do not describe what the ledger's rules allow: one of them was changed, put in or taken out."


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong. `line` is where it shows, 0 for what is wrong with an older head that was given; where only a
    range can be told, `from_line` is where that begins."""

    line: int
    rule: str
    detail: str
    job_id: int | None = None
    rev: int | None = None
    pos: int | None = None
    from_line: int | None = None
    event: str | None = None
    """The type of the event, where it is about one."""

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self.rule, DEFAULT_MEANING)

    def place(self) -> str:
        """Where it is, for people."""
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
    """As they come; in the order of the file in the end."""

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Finding] = []
        self._torn: list[Finding] = []

    def torn(self, line: int, detail: str, job_id: int | None = None, rev: int | None = None, event: str | None = None) -> None:
        """A line that cannot be read, or an end that is missing: what else is found from then on may only follow from that, and
        is not told. `job_id`, `rev` and `event` are given where the line is about an event."""
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
        """The best first: what is wrong with the file as a file, events that were changed or deleted, then the others in the
        order of the file, and older heads last. A range of lines follows whatever is known to be wrong with a job."""
        last = max((found.line for found in self._kept if found.job_id is not None), default=0)
        return sorted(self._torn + self._kept, key=lambda found: _sort_key(found, last))[:count]


def _sort_key(found: Finding, last: int) -> tuple[bool, bool, bool, int, bool]:
    """`last` is the last line in which something is wrong with a job."""
    is_range = found.from_line is not None
    line = max(found.line, last) if is_range else found.line
    return found.rule not in ("file", "value"), found.rule not in ("changed", "deleted"), found.line == 0, line, is_range


class CheckedCounts(msgspec.Struct, frozen=True):
    """How much was looked at."""

    events: int = 0
    jobs: int = 0
    keys: int = 0
    gone: int = 0
    """Leaves of which only the hash is left."""
    deleted: int = 0
    """Those of them that retention did not take."""
    signatures: int = 0
    leaves: int = 0
    heads: int = 0
    anchors: int = 0
    attempts: int = 0
    unsigned_attempts: int = 0
    """Attempts whose policy wants no signatures."""
    worker_keys: int = 0
    """Keys that workers have, or had."""


class VerificationReport(msgspec.Struct, frozen=True):
    """The outcome for one file. It is intact where nothing was found."""

    kind: str
    ledger: str | None
    checked: CheckedCounts
    sealed: int
    """Leaves under the newest head."""
    unsealed: int
    """Events and changes of keys that are newer than it."""
    root: str | None
    """Of the newest head, in hex."""
    found: int
    findings: list[Finding]
    """The first of them."""

    @property
    def intact(self) -> bool:
        return self.found == 0
