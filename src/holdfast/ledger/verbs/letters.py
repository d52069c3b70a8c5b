"""Groups of dead letters of the same cause."""

from collections.abc import Sequence
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


class GroupField(StrEnum):
    """What dead letters are grouped by."""

    REASON_CODE = "reason_code"
    FAILURE_STAGE = "failure_stage"
    ERROR_TEXT = "error_text"
    KIND = "kind"
    QUEUE = "queue"


class LetterGroup(msgspec.Struct, frozen=True):
    """Dead letters that have the same values. `key` has the values, by field."""

    key: dict[str, str | None]
    n: int
    newest_id: int
    newest_at: datetime


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
    ) -> LetterGroups:
        """Group the dead letters that are not discarded, by one or several fields.

        The fields are reason_code, failure_stage, error_text, kind and queue. In an error's text, quoted parts, hexadecimal
        numbers and digits are masked, so that errors of the same cause have the same text.
        """
        fields = group_fields(by)
        name = None if queue is None else limits.check_name("queue", queue)
        of_kind = None if kind is None else limits.check_name("kind", kind)
        limit = limits.GROUPED_LETTERS_MAX
        letters = self._store.read_statement(lambda session: session.letters(name, of_kind, limit + 1))
        groups: dict[tuple[str | None, ...], list[LetterRow]] = {}
        for letter in letters[:limit]:
            groups.setdefault(tuple(_value(letter, field) for field in fields), []).append(letter)
        largest = sorted(groups.items(), key=lambda item: (-len(item[1]), -item[1][0].id))
        shown = [
            LetterGroup(dict(zip(fields, key, strict=True)), len(found), found[0].id, to_datetime(found[0].finished_at))
            for key, found in largest[: limits.GROUPS_MAX]
        ]
        return LetterGroups(shown, min(len(letters), limit), len(letters) > limit or len(groups) > limits.GROUPS_MAX)


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
