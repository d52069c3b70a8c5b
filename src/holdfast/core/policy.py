"""Policies: what may be set, how the layers combine, when to try again."""

import re
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.limits import LEASE_MS_MAX, LEASE_MS_MIN, check_integer
from holdfast.core.model import EventType, Policy
from holdfast.errors import LimitExceeded, ValidationError

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAY_MS = 86_400_000

TIER_INTERVAL_MS = {"in_home": 30_000, "managed_building": 60_000, "hospitality": 60_000, "office_after_hours": 60_000}
UNKNOWN_TIER_INTERVAL_MS = 60_000


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields one layer sets; None leaves a field to the layers below."""

    heartbeat_interval_ms: int | None = None
    missed_beats_max: int | None = None
    lease_ttl_ms: int | None = None
    resume_window_ms: int | None = None
    attempts_max: int | None = None
    on_exhausted: str | None = None
    backoff_base_ms: int | None = None
    backoff_max_ms: int | None = None
    cancel_grace_ms: int | None = None
    progress_timeout_ms: int | None = None
    requires_operator_coverage: bool | None = None
    signed: str | None = None
    lease_widened: bool | None = None
    """An operator allowed leases beyond an hour, up to a day."""


NO_SETTINGS = Settings()

_DURATIONS = {
    "heartbeat_interval": (1_000, LEASE_MS_MAX),
    "lease_ttl": (LEASE_MS_MIN, DAY_MS),
    "resume_window": (0, DAY_MS),
    "backoff_base": (0, DAY_MS),
    "backoff_max": (0, DAY_MS),
    "cancel_grace": (0, DAY_MS),
    "progress_timeout": (1_000, 30 * DAY_MS),
}
_COUNTS = {"missed_beats_max": (1, 100), "attempts_max": (1, 1_000)}
_CHOICES = {"on_exhausted": ("dead_letter", "fail"), "signed": ("none", "liveness", "all")}
_SWITCHES = ("requires_operator_coverage", "lease_widened")
FIELDS = {name: f"{name}_ms" for name in _DURATIONS} | {name: name for name in (*_COUNTS, *_CHOICES, *_SWITCHES)}
"""The name in `Settings` of each field, by the name users write."""
_STRICTNESS = {wish: rank for rank, wish in enumerate(_CHOICES["signed"])}


def duration_ms(what: str, value: Any, low: int, high: int) -> int:
    """Milliseconds from seconds (a number), a timedelta, or a text such as "500ms", "30s", "5m", "1h"."""
    match value:
        case timedelta():
            ms = value / timedelta(milliseconds=1)
        case bool():
            raise ValidationError(f"{what} must be a duration, not a bool", field=what)
        case int() | float():
            ms = value * 1_000
        case str() if found := _DURATION.fullmatch(value):
            ms = float(found[1]) * _UNIT_MS[found[2]]
        case _:
            raise ValidationError(f'{what} must be seconds, a timedelta, or a text such as "30s" or "500ms"', field=what)
    if not low <= ms <= high:
        raise LimitExceeded(f"{what} must be from {low} to {high} ms", field=what, limit=[low, high])
    return round(ms)


def read_settings(fields: dict[str, Any]) -> Settings:
    """One layer from the names users write (`lease_ttl="60s"`, `attempts_max=5`). None unsets a field."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in _DURATIONS:
            found[f"{name}_ms"] = duration_ms(name, value, *_DURATIONS[name])
        elif name in _COUNTS:
            found[name] = check_integer(name, value, *_COUNTS[name])
        elif name in _CHOICES:
            if value not in _CHOICES[name]:
                raise ValidationError(f"{name} must be one of {', '.join(_CHOICES[name])}", field=name)
            found[name] = value
        elif name in _SWITCHES:
            if not isinstance(value, bool):
                raise ValidationError(f"{name} must be true or false", field=name)
            found[name] = value
        else:
            raise _unknown_field(name)
    return _check_lease_ttl(Settings(**found))


def _unknown_field(name: Any) -> ValidationError:
    known = ", ".join(sorted(FIELDS))
    return ValidationError(f"there is no policy field {name!r:.80}; there are: {known}", field="policy")


def amend_settings(layer: Settings, fields: dict[str, Any]) -> Settings:
    """The layer with these fields set, by the names users write; those that are not named stay as they are."""
    return _check_lease_ttl(msgspec.structs.replace(layer, **_set_fields(read_settings(fields))))


def unset_fields(layer: Settings, names: Iterable[Any]) -> Settings:
    """The layer with these fields left to the layers below, by the names users write."""
    gone: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str) or name not in FIELDS:
            raise _unknown_field(name)
        gone[FIELDS[name]] = None
    return _check_lease_ttl(msgspec.structs.replace(layer, **gone))


def merge_settings(declared: Settings, by_operator: Settings) -> Settings:
    """What counts for a kind: each field as the operator set it, else as the handler declares it."""
    return _check_lease_ttl(msgspec.structs.replace(declared, **_set_fields(by_operator)))


def lowers_signed(before: Settings, after: Settings) -> bool:
    """Whether less has to be signed under one layer than under the other."""
    return _STRICTNESS[after.signed or "none"] < _STRICTNESS[before.signed or "none"]


def _check_lease_ttl(layer: Settings) -> Settings:
    if layer.lease_ttl_ms is not None and layer.lease_ttl_ms > LEASE_MS_MAX and not layer.lease_widened:
        raise LimitExceeded(
            f"lease_ttl must be at most {LEASE_MS_MAX} ms unless lease_widened is set",
            field="lease_ttl",
            limit=LEASE_MS_MAX,
        )
    return layer


def tier_settings(tier: str | None) -> Settings:
    """What a tier sets by itself. A tier nobody knows is treated like a slow one; a job without a tier is no robot."""
    if tier is None:
        return NO_SETTINGS
    return Settings(heartbeat_interval_ms=TIER_INTERVAL_MS.get(tier, UNKNOWN_TIER_INTERVAL_MS))


def resolve(tier: str | None, by_kind: Settings, by_tier: Settings, by_job: Settings) -> Policy:
    """The nearest layer that sets a field wins: job, tier, kind, the tier's own numbers, the defaults. `by_kind` is `merged`.

    `signed` is the strictest that any of them wants: a job or a tier may ask for more, never for less. `lease_ttl` never ends
    before `stall_after` would. Unless they are set, a tier's `resume_window` is its `stall_after`, and `cancel_grace` is not
    shorter than that: a holder learns of a cancel with its next beat.
    """
    chosen: dict[str, Any] = {}
    for layer in (tier_settings(tier), by_kind, by_tier, by_job):
        chosen.update(_set_fields(layer))
    chosen.pop("lease_widened", None)
    chosen["signed"] = max((layer.signed or "none" for layer in (by_kind, by_tier, by_job)), key=_STRICTNESS.__getitem__)
    policy = Policy(**chosen)
    stall_after = policy.stall_after_ms
    lease = max(policy.lease_ttl_ms, stall_after)
    window = chosen.get("resume_window_ms", stall_after if tier is not None else 0)
    grace = chosen.get("cancel_grace_ms", _default_grace_ms(policy))
    return msgspec.structs.replace(policy, lease_ttl_ms=lease, resume_window_ms=window, cancel_grace_ms=grace)


class FieldSource(StrEnum):
    """Where the value of a policy's field comes from, the nearest first."""

    OPERATOR_TIER = "operator_tier"
    """Set by an operator for the tier."""
    OPERATOR_KIND = "operator_kind"
    """Set by an operator for the kind."""
    HANDLER = "handler"
    """Declared by the kind's handler."""
    TIER = "tier"
    """The tier's own number."""
    DERIVED = "derived"
    """Follows from other fields: see `resolve`."""
    DEFAULT = "default"


class SourcedField(msgspec.Struct, frozen=True):
    """One field of a policy: its value and where that comes from."""

    name: str
    value: int | str | bool | None
    source: FieldSource
    layers: dict[FieldSource, int | str | bool]
    """The value in every layer that sets the field, the nearest layer first."""


def source_fields(tier: str | None, declared: Settings, by_kind: Settings, by_tier: Settings) -> list[SourcedField]:
    """Every field that `resolve` gives to a job without settings of its own, and `stall_after_ms`, each with its source."""
    of_kind = merge_settings(declared, by_kind)
    layers = {
        FieldSource.OPERATOR_TIER: by_tier,
        FieldSource.OPERATOR_KIND: by_kind,
        FieldSource.HANDLER: declared,
        FieldSource.TIER: tier_settings(tier),
    }
    policy = resolve(tier, of_kind, by_tier, NO_SETTINGS)
    defaults = msgspec.structs.asdict(Policy())
    found = []
    for name, value in msgspec.structs.asdict(policy).items():
        said = {source: wish for source, layer in layers.items() if (wish := getattr(layer, name)) is not None}
        nearest = list(said.items()) if name == "signed" else list(said.items())[:1]
        otherwise = FieldSource.DEFAULT if not said and value == defaults[name] else FieldSource.DERIVED
        found.append(SourcedField(name, value, next((source for source, wish in nearest if wish == value), otherwise), said))
    return [*found, SourcedField("stall_after_ms", policy.stall_after_ms, FieldSource.DERIVED, {})]


def _default_grace_ms(policy: Policy) -> int:
    """How long a soft cancel waits where nobody has said so."""
    return max(Policy().cancel_grace_ms, policy.stall_after_ms)


def _set_fields(layer: Settings) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(layer).items() if value is not None}


def with_ttl(policy: Policy, ttl_ms: int) -> Policy:
    """The policy of a lease whose length its claimer chose: silence is then judged by that length too, and so is the time to
    hear of a cancel, unless that was set."""
    missed = min(policy.missed_beats_max, max(1, ttl_ms // 1_000))
    leased = msgspec.structs.replace(policy, lease_ttl_ms=ttl_ms, missed_beats_max=missed, heartbeat_interval_ms=ttl_ms // missed)
    if policy.cancel_grace_ms != _default_grace_ms(policy):
        return leased
    return msgspec.structs.replace(leased, cancel_grace_ms=_default_grace_ms(leased))


_TTL_FIELDS = ("lease_ttl_ms", "missed_beats_max", "heartbeat_interval_ms", "cancel_grace_ms")
"""The fields that `with_ttl` sets."""


def is_renewal(before: Policy, after: Policy) -> bool:
    """Whether `after` is `before` for a lease of another length: a renewal changes nothing else."""
    kept = {name: getattr(before, name) for name in _TTL_FIELDS}
    return after != before and msgspec.structs.replace(after, **kept) == before


def backoff_us(policy: Policy, tries: int, jitter: float) -> int:
    """How long to wait before the next try: doubled each time up to the maximum, then spread by `jitter` (0.5 to 1.5)."""
    exponent = min(max(tries, 1) - 1, 40)
    plain_ms = min(policy.backoff_base_ms * 2**exponent, policy.backoff_max_ms)
    return int(plain_ms * 1_000 * jitter)


LIVENESS_TYPES = frozenset({EventType.HEARTBEAT, EventType.STALLED, EventType.RESUMED})
UNSIGNED_TYPES = frozenset({EventType.ENQUEUED, EventType.CLAIMED, EventType.STARTED})
"""Made by the ledger in bulk: the sealed log vouches for them."""


def must_be_signed(policy: Policy | None, kind: EventType) -> bool:
    """Whether an event of this type has to be signed under the policy of its attempt; before the first there is none."""
    if policy is None or policy.signed == "none":
        return False
    return kind in LIVENESS_TYPES if policy.signed == "liveness" else kind not in UNSIGNED_TYPES
