"""A history whose holder signs, driven through the core alone."""

from typing import Any, Self

import msgspec

from holdfast.core import commands as c
from holdfast.core.model import Actor, EventRecord, Policy
from holdfast.proof.key_book import ENROLLED, KeyBook, KeyChange
from holdfast.proof.keys import SecretKey
from holdfast.proof.signing import STATED_TYPES, Signed, holder_statement
from holdfast.proof.statements import Statement, encode_ledger_statement, encode_statement, statement_message
from tests.unit.histories import OPERATOR, T0, WORKER, History

LEDGER = "8f2e"
LIVENESS, ALL = Policy(resume_window_ms=60_000, signed="liveness"), Policy(resume_window_ms=60_000, signed="all")
KEYS = {
    ("worker", WORKER.name): SecretKey(b"w" * 32),
    ("server", "hq"): SecretKey(b"s" * 32),
    ("operator", OPERATOR.name): SecretKey(b"o" * 32),
}
HOLDER = KEYS["worker", WORKER.name]


def book() -> KeyBook:
    """A key book with all keys, enrolled before all events."""
    changes = [
        KeyChange(pos, ENROLLED, key.key_id, role, name, key.public_key.public, T0, "operator:ann", key.key_id)
        for pos, ((role, name), key) in enumerate(KEYS.items(), 1)
    ]
    return KeyBook(changes)


def sealed(said: Statement, key: SecretKey = HOLDER) -> Signed:
    statement = encode_statement(said)
    return Signed(key.key_id, key.sign(statement_message(statement)), statement, said)


class SignedHistory(History):
    """The holder signs each command that can be signed, unless `signed` is given.

    Events of the system and of operators are signed as a ledger would sign them.
    """

    counter = 0

    def __init__(self, policy: Policy = ALL, /, **options: Any) -> None:
        super().__init__(policy, **options)
        self.events[0] = msgspec.structs.replace(self.events[0], pos=10)

    def stated(self, kind: type[c.JobCommand], fields: dict[str, Any], **changes: Any) -> Signed:
        """The holder's signed statement for a command. `changes` forge it."""
        self.counter += 1
        command = kind(job_id=7, **{"actor": WORKER} | fields)
        said = holder_statement(LEDGER, command, WORKER, self.job.attempt, counter=self.counter, at=self.now)
        return sealed(msgspec.structs.replace(said, **changes))

    def do(self, kind: type[c.JobCommand], **fields: Any) -> Self:
        is_holders = fields.get("actor", WORKER) == WORKER and kind in STATED_TYPES
        if is_holders and "signed" not in fields and not (kind is c.ClaimJob and self.job.owner is None):
            if "fence" in kind.__struct_fields__:
                fields.setdefault("fence", self.fence)
            fields = {"actor": WORKER} | fields
            fields["signed"] = self.stated(kind, fields)
        known = len(self.events)
        super().do(kind, **fields)
        self.events[known:] = [self._attested(event, pos) for pos, event in enumerate(self.events[known:], known + 10)]
        return self

    def _attested(self, event: EventRecord, pos: int) -> EventRecord:
        event = msgspec.structs.replace(event, pos=pos)
        key = _key_of(event.actor)
        if event.statement is not None or key is None:
            return event
        statement = encode_ledger_statement(LEDGER, event)
        signature = key.sign(statement_message(statement))
        return msgspec.structs.replace(event, key_id=key.key_id, signature=signature, statement=statement)


def _key_of(actor: Actor) -> SecretKey | None:
    return {"system": KEYS["server", "hq"], "operator": KEYS["operator", OPERATOR.name]}.get(actor.role.value)
