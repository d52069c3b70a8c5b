"""Answers about sinks, keys and seals, and about the command line itself."""

from typing import Any, Literal

import msgspec

from holdfast.cli.shapes.base import Shape
from holdfast.core.doctor import Diagnosis
from holdfast.core.policy import Sourced
from holdfast.core.proof.exported import EndLine
from holdfast.core.proof.keys import KeyRole
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import DeclarationRecord, KeyRecord, SinkState
from holdfast.verify.findings import Checked


class KindPolicy(Shape, frozen=True):
    kind: str
    operator: dict[str, Any]
    """The fields that operators set."""
    handler: DeclarationRecord | None
    """What its handler declares."""


class TierPolicy(Shape, frozen=True):
    tier: str
    operator: dict[str, Any]


class PolicyList(Shape, frozen=True):
    kinds: list[KindPolicy]
    tiers: list[TierPolicy]


class OnePolicy(Shape, frozen=True):
    kind: str | None
    tier: str | None
    fields: list[Sourced]
    handler: DeclarationRecord | None
    """What the kind's handler declares."""
    remarks: list[str]
    """What is worth knowing of a change that was made: that no worker knows the kind, or that a value does not count."""


class Sinks(Shape, frozen=True):
    sinks: list[SinkState]


class OneSink(Shape, frozen=True):
    sink: SinkState


class Dropped(Shape, frozen=True):
    name: str
    dropped: bool


class KeyMade(Shape, frozen=True):
    key_id: str
    role: KeyRole
    name: str
    public: str
    file: str
    enrolled: bool
    enrolled_pos: int | None
    why_not: str | None
    revoked: str | msgspec.UnsetType = msgspec.UNSET
    """The key in whose place it is."""


class OneKey(Shape, frozen=True):
    key: KeyRecord


class Keys(Shape, frozen=True):
    keys: list[KeyRecord]


class PublicKeyLine(Shape, frozen=True):
    key_id: str
    role: KeyRole
    name: str
    public: str
    enrolled_pos: int
    revoked_pos: int | None


class PublicKeys(Shape, frozen=True):
    holdfast_keys: Literal[1]
    ledger: str
    vkey: str | None
    keys: list[PublicKeyLine]
    file: str | msgspec.UnsetType = msgspec.UNSET


class Head(Shape, frozen=True):
    size: int
    pos: int
    note: str


class Sealed(Shape, frozen=True):
    head: Head | None


class Diagnosed(Diagnosis, frozen=True, kw_only=True):
    url: str
    holdfast_version: str


class Proved(Shape, frozen=True):
    file: str
    lines: EndLine
    job_id: int


class Exported(Shape, frozen=True):
    file: str
    dialect: Dialect
    lines: EndLine
    """In another dialect than `holdfast` there are events only."""


class Violation(Shape, frozen=True):
    line: int
    rule: str
    detail: str
    meaning: str
    job_id: int | msgspec.UnsetType = msgspec.UNSET
    rev: int | msgspec.UnsetType = msgspec.UNSET
    pos: int | msgspec.UnsetType = msgspec.UNSET
    from_line: int | msgspec.UnsetType = msgspec.UNSET


class Verified(Shape, frozen=True):
    file: str
    intact: bool
    kind: str
    ledger: str | None
    checked: Checked
    sealed: int
    unsealed: int
    root: str | None
    found: int
    violations: list[Violation]


class Schemas(Shape, frozen=True):
    schemas: dict[str, dict[str, Any]]
    """By command: the schema of each line that it answers with."""


class Migrated(Shape, frozen=True):
    ledger: str
    found: int
    """The schema that it had; 0 where it was empty."""
    version: int
    applied: list[str]


class Completion(Shape, frozen=True):
    shell: str
    script: str
