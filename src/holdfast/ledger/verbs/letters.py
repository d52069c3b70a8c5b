"""Groups of dead letters of the same cause."""

from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core import limits
from holdfast.core.formatting import format_error
from holdfast.core.masking import TEXT_CHARACTERS_MAX, mask_error
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import to_datetime
from holdfast.store.readings import LetterRow
from holdfast.store.session import Session


class GroupField(StrEnum):
    """What dead letters are grouped by."""

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
    is_replayed: bool


class LetterGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dead letters that have the same values. `key` has the values, by field."""

    key: dict[str, str | None]
    n: int
    newest_id: int
    newest_at: datetime
    letters: tuple[GroupedLetter, ...] = ()
    """With `letters`: all letters of the group, the newest first."""


class LetterGroups(msgspec.Struct, frozen=True):
    """Groups of dead letters, the largest first, 200 at most."""

    groups: list[LetterGroup]
    examined: int
    """How many dead letters were read: the newest 10,000 at most."""
    cut: bool
    """Whether there are more dead letters, or more groups."""


class LetterGroupVerb(LedgerBase):
    def dead_letter_groups(
        self,
        by: str | Sequence[str] = ("reason_code", "failure_stage", "error_text"),
        *,
        queue: str | None = None,
        kind: str | None = None,
        letters: bool = False,
    ) -> LetterGroups:
        """Group the dead letters that are not discarded, by one or several fields. With `letters`, each group has its letters.

        The fields are reason_code, failure_stage, error_text, kind and queue. In an error's text, quoted parts, hexadecimal
        numbers and digits are masked, so that errors of the same cause have the same text.
        """
        fields = group_fields(by)
        name = None if queue is None else limits.check_name("queue", queue)
        of_kind = None if kind is None else limits.check_name("kind", kind)
        limit, in_full = limits.GROUPED_LETTERS_MAX, validate.switch("letters", letters)

        def work(session: Session) -> tuple[Sequence[LetterRow], Mapping[int, int]]:
            found = session.letters(name, of_kind, limit + 1)
            return found, session.replayed([row.id for row in found]) if in_full else {}

        rows, replayed = self._store.read(work)
        groups: dict[tuple[str | None, ...], list[LetterRow]] = {}
        for row in rows[:limit]:
            groups.setdefault(tuple(_value(row, field) for field in fields), []).append(row)
        largest = sorted(groups.items(), key=lambda item: (-len(item[1]), -item[1][0].id))
        shown = [
            _group(dict(zip(fields, key, strict=True)), found, replayed if in_full else None)
            for key, found in largest[: limits.GROUPS_MAX]
        ]
        return LetterGroups(shown, min(len(rows), limit), len(rows) > limit or len(groups) > limits.GROUPS_MAX)


def _group(key: dict[str, str | None], found: Sequence[LetterRow], replayed: Container[int] | None) -> LetterGroup:
    """Return a group. It has its letters if it is given which letters were replayed."""
    letters: tuple[GroupedLetter, ...] = ()
    if replayed is not None:
        letters = tuple(GroupedLetter(row.id, row.rev, row.queue, row.kind, row.id in replayed) for row in found)
    return LetterGroup(key, len(found), found[0].id, to_datetime(found[0].finished_at), letters)


def group_fields(by: str | Sequence[str]) -> list[str]:
    """Return the fields to group by, each once."""
    given = [by] if isinstance(by, str) else validate.items("by", by)
    found = list(dict.fromkeys(validate.choice("by", GroupField, field).value for field in given))
    if not found:
        raise ValidationError("by must name at least one field", field="by")
    return found


def _value(letter: LetterRow, field: str) -> str | None:
    if field != GroupField.ERROR_TEXT:
        value: str | None = getattr(letter, field)
        return value
    error = None if letter.last_error is None else msgspec.json.decode(letter.last_error)
    return None if error is None else mask_error(format_error(error, 5 * TEXT_CHARACTERS_MAX))
