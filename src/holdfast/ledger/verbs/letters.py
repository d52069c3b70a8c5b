"""Groups of dead letters of the same cause."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.formatting import format_error
from holdfast.core.masking import TEXT_CHARACTERS_MAX, mask_error
from holdfast.core.text import truncate
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import to_datetime
from holdfast.store.readings import LetterRow
from holdfast.store.session import Session


class GroupField(StrEnum):
    """What dead letters are grouped by. The cause is the error's text. A letter without an error has its reason and stage."""

    CAUSE = "cause"
    REASON_CODE = "reason_code"
    FAILURE_STAGE = "failure_stage"
    ERROR_TEXT = "error_text"
    KIND = "kind"
    QUEUE = "queue"


class GroupedLetter(msgspec.Struct, frozen=True):
    """A dead letter of a group, with the revision at which it was seen."""

    id: int
    rev: int
    queue: str
    kind: str


class LetterGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dead letters that have the same values. `key` has the values, by field."""

    key: dict[str, str | None]
    n: int
    newest_id: int
    newest_at: datetime
    letters: tuple[GroupedLetter, ...] = ()
    """With `letters`: all letters of the group, the newest first."""
    reasons: dict[str, int] = {}
    """How many letters have each reason code."""


class LetterGroups(msgspec.Struct, frozen=True):
    """Groups of dead letters, the largest first, 200 at most."""

    groups: list[LetterGroup]
    examined: int
    """How many dead letters were read: the newest 10,000 at most."""
    cut: bool
    """Whether there are more dead letters, or more groups."""
    replayed: int
    """How many of the letters that were read are in no group, because they were replayed."""


class LetterGroupVerb(LedgerBase):
    def dead_letter_groups(
        self,
        by: str | Sequence[str] = "cause",
        *,
        queue: str | None = None,
        kind: str | None = None,
        letters: bool = False,
    ) -> LetterGroups:
        """Group the dead letters that are neither discarded nor replayed, by one or several fields.

        The fields are cause, reason_code, failure_stage, error_text, kind and queue. In an error's text, quoted parts, hosts and
        numbers are masked, so that errors of the same cause have the same text. The cause of a letter without an error is its
        reason and stage. With `letters`, each group has its letters.
        """
        return self._letter_groups(by, queue, kind, letters=letters, sees=None)

    def _letter_groups(
        self, by: str | Sequence[str], queue: str | None, kind: str | None, *, letters: bool, sees: Callable[[str], bool] | None
    ) -> LetterGroups:
        fields = group_fields(by)
        name = None if queue is None else limits.check_name("queue", queue)
        of_kind = None if kind is None else limits.check_name("kind", kind)
        limit, in_full = limits.GROUPED_LETTERS_MAX, validate.switch("letters", letters)

        def work(session: Session) -> tuple[Sequence[LetterRow], Collection[int]]:
            found = session.letters(name, of_kind, limit + 1)
            return found, session.replayed([row.id for row in found[:limit]])

        rows, replayed = self._store.read(work)
        read = [row for row in rows[:limit] if sees is None or sees(row.queue)]
        groups: dict[tuple[str | None, ...], list[LetterRow]] = {}
        for row in read:
            if row.id not in replayed:
                groups.setdefault(tuple(_value(row, field) for field in fields), []).append(row)
        largest = sorted(groups.items(), key=lambda item: (-len(item[1]), -item[1][0].id))
        shown = [_group(dict(zip(fields, key, strict=True)), found, in_full) for key, found in largest[: limits.GROUPS_MAX]]
        cut = len(rows) > limit or len(groups) > limits.GROUPS_MAX
        return LetterGroups(shown, len(read), cut, sum(row.id in replayed for row in read))


def letter_groups_to(
    ledger: LetterGroupVerb, by: str, queue: str | None, kind: str | None, *, letters: bool, sees: Callable[[str], bool]
) -> LetterGroups:
    """Group the dead letters that a reader of some queues may see. `sees` says which."""
    return ledger._letter_groups(by.split(","), queue, kind, letters=letters, sees=sees)  # noqa: SLF001 - the same module


def _group(key: dict[str, str | None], found: Sequence[LetterRow], in_full: bool) -> LetterGroup:
    letters = tuple(GroupedLetter(row.id, row.rev, row.queue, row.kind) for row in found) if in_full else ()
    reasons = Counter(row.reason_code for row in found if row.reason_code is not None)
    return LetterGroup(key, len(found), found[0].id, to_datetime(found[0].finished_at), letters, dict(reasons.most_common()))


def group_fields(by: str | Sequence[str]) -> list[str]:
    """Return the fields to group by, each once."""
    given = [by] if isinstance(by, str) else validate.items("by", by)
    found = list(dict.fromkeys(validate.choice("by", GroupField, field).value for field in given))
    if not found:
        raise ValidationError("by must name at least one field", field="by")
    return found


def _value(letter: LetterRow, field: str) -> str | None:
    if field not in (GroupField.ERROR_TEXT, GroupField.CAUSE):
        value: str | None = getattr(letter, field)
        return value
    error = None if letter.last_error is None else msgspec.json.decode(letter.last_error)
    if error is not None:
        return _masked(error)
    if field == GroupField.ERROR_TEXT:
        return None
    return " · ".join(filter(None, (letter.reason_code, letter.failure_stage))) or None


def _masked(error: Any) -> str:
    """Return an error's text for comparison. Its type stays as it is."""
    if isinstance(error, dict) and isinstance(error.get("type"), str) and "message" in error:
        message = mask_error(format_error(error["message"], 5 * TEXT_CHARACTERS_MAX))
        return truncate(f"{error['type']}: {message}", TEXT_CHARACTERS_MAX)
    return mask_error(format_error(error, 5 * TEXT_CHARACTERS_MAX))
