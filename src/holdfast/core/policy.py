"""Policies: the fields and their limits, how the layers combine, and the backoff of retries."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.limits import LEASE_MS_MAX, LEASE_MS_MIN, check_integer, out_of_range
from holdfast.core.model import EventType, Policy
from holdfast.core.text import format_setting_ms
from holdfast.errors import LimitExceeded, ValidationError

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAY_MS = 86_400_000

TIER_INTERVAL_MS = {"in_home": 30_000, "managed_building": 60_000, "hospitality": 60_000, "office_after_hours": 60_000}
UNKNOWN_TIER_INTERVAL_MS = 60_000


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields that one layer sets. None leaves a field to the layers below."""

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
    """Whether an operator allows leases longer than an hour, up to a day."""


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
_STRICTNESS = {choice: rank for rank, choice in enumerate(_CHOICES["signed"])}


def is_duration(text: str) -> bool:
    """Return whether a text is a duration, such as "500ms", "30s", "5m", "1h"."""
    return _DURATION.fullmatch(text) is not None


def duration_ms(what: str, value: Any, low: int, high: int, field: str | None = None) -> int:
    """Return milliseconds from seconds (a number), a timedelta, or a text such as "500ms", "30s", "5m", "1h".

    Messages name it as `what`, and errors carry the name of the field, which is `what` too if none is given.
    """
    field = field or what
    match value:
        case timedelta():
            ms = value / timedelta(milliseconds=1)
        case bool():
            raise ValidationError(f"{what} must be a duration, not a bool", field=field)
        case int() | float():
            ms = value * 1_000
        case str() if found := _DURATION.fullmatch(value):
            ms = float(found[1]) * _UNIT_MS[found[2]]
        case _:
            raise ValidationError(f'{what} must be seconds, a timedelta, or a text such as "30s" or "500ms"', field=field)
    if not low <= ms <= high:
        raise out_of_range(what, f"{_format_bound(low)} to {_format_bound(high)}", low, high, field)
    return round(ms)


def _format_bound(ms: int) -> str:
    return re.sub(r"(?<=\d)(?=[a-z])", " ", format_setting_ms(ms))


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Settings` from user-facing names and values (`lease_ttl="60s"`, `attempts_max=5`).

    The value None unsets a field.
    """
    for name in fields:
        if name not in FIELDS:
            known = ", ".join(sorted(FIELDS))
            raise ValidationError(f"there is no policy field {name!r:.80}; there are: {known}", field="policy")
    return {FIELDS[name]: None if fields[name] is None else _read_value(name, fields[name]) for name in sorted(fields)}


def _read_value(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return duration_ms(name, value, *_DURATIONS[name])
    if name in _COUNTS:
        return check_integer(name, value, *_COUNTS[name])
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValidationError(f"{name} must be one of {', '.join(_CHOICES[name])}", field=name)
    if name in _SWITCHES and not isinstance(value, bool):
        raise ValidationError(f"{name} must be true or false", field=name)
    return value


def change_settings(layer: Settings, changes: dict[str, Any]) -> Settings:
    """Return the layer with the changes that `read_fields` returned. Other fields stay as they are."""
    return _check_lease_ttl(msgspec.structs.replace(layer, **changes))


def read_settings(fields: Mapping[str, Any]) -> Settings:
    """Return a layer from user-facing names and values."""
    return change_settings(NO_SETTINGS, read_fields(fields))


def merge_settings(declared: Settings, by_operator: Settings) -> Settings:
    """Return the settings of a kind: each field as the operator set it, else as the handler declares it."""
    return change_settings(declared, _set_fields(by_operator))


def lowers_signed(before: Settings, after: Settings) -> bool:
    """Return whether less has to be signed under `after` than under `before`."""
    return _STRICTNESS[after.signed or "none"] < _STRICTNESS[before.signed or "none"]


def _check_lease_ttl(layer: Settings) -> Settings:
    if layer.lease_ttl_ms is not None and layer.lease_ttl_ms > LEASE_MS_MAX and not layer.lease_widened:
        raise LimitExceeded(
            f"lease_ttl must be at most {_format_bound(LEASE_MS_MAX)} unless lease_widened is set",
            action="Give a shorter one, or set lease_widened for the kind or the tier.",
            field="lease_ttl",
            limit=LEASE_MS_MAX,
        )
    return layer


def tier_settings(tier: str | None) -> Settings:
    """Return the built-in settings of a tier. An unknown tier gets the slowest interval. No tier sets nothing."""
    if tier is None:
        return NO_SETTINGS
    return Settings(heartbeat_interval_ms=TIER_INTERVAL_MS.get(tier, UNKNOWN_TIER_INTERVAL_MS))


def resolve(tier: str | None, by_kind: Settings, by_tier: Settings, by_job: Settings) -> Policy:
    """Combine the layers into a policy. The nearest layer that sets a field wins: job, tier, kind, tier's built-in, default.

    `by_kind` is the result of `merge_settings`. `signed` is the strictest of all layers: a job or a tier can ask for more, never
    for less. `lease_ttl` is at least `stall_after`. Unless they are set, `resume_window` of a tier is `stall_after`, and
    `cancel_grace` is at least `stall_after`, because a holder is informed of a cancel with its next heartbeat.
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
    """Where the value of a policy's field comes from. The nearest layer is first."""

    OPERATOR_TIER = "operator_tier"
    """Set by an operator for the tier."""
    OPERATOR_KIND = "operator_kind"
    """Set by an operator for the kind."""
    HANDLER = "handler"
    """Declared by the kind's handler."""
    TIER = "tier"
    """The tier's built-in value."""
    DERIVED = "derived"
    """Computed from other fields: see `resolve`."""
    DEFAULT = "default"


class SourcedField(msgspec.Struct, frozen=True):
    """One field of a policy, its value and the source of the value."""

    name: str
    value: int | str | bool | None
    source: FieldSource
    layers: dict[FieldSource, int | str | bool]
    """The value in every layer that sets the field, the nearest layer first."""


def source_fields(tier: str | None, declared: Settings, by_kind: Settings, by_tier: Settings) -> list[SourcedField]:
    """Return the fields that `resolve` gives to a job without own settings, and `stall_after_ms`, each with its source."""
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
        by_layer = {source: setting for source, layer in layers.items() if (setting := getattr(layer, name)) is not None}
        nearest = list(by_layer.items()) if name == "signed" else list(by_layer.items())[:1]
        otherwise = FieldSource.DEFAULT if not by_layer and value == defaults[name] else FieldSource.DERIVED
        source = next((source for source, setting in nearest if setting == value), otherwise)
        found.append(SourcedField(name, value, source, by_layer))
    return [*found, SourcedField("stall_after_ms", policy.stall_after_ms, FieldSource.DERIVED, {})]


def _default_grace_ms(policy: Policy) -> int:
    """Return the cancel_grace of a policy that does not set it."""
    return max(Policy().cancel_grace_ms, policy.stall_after_ms)


def _set_fields(layer: Settings) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(layer).items() if value is not None}


def with_ttl(policy: Policy, ttl_ms: int) -> Policy:
    """Return the policy for a lease whose length the claiming worker chose.

    The heartbeat interval follows from that length, and so does `cancel_grace`, unless it was set.
    """
    missed = min(policy.missed_beats_max, max(1, ttl_ms // 1_000))
    leased = msgspec.structs.replace(policy, lease_ttl_ms=ttl_ms, missed_beats_max=missed, heartbeat_interval_ms=ttl_ms // missed)
    if policy.cancel_grace_ms != _default_grace_ms(policy):
        return leased
    return msgspec.structs.replace(leased, cancel_grace_ms=_default_grace_ms(leased))


_TTL_FIELDS = ("lease_ttl_ms", "missed_beats_max", "heartbeat_interval_ms", "cancel_grace_ms")
"""The fields that `with_ttl` sets."""


def is_renewal(before: Policy, after: Policy) -> bool:
    """Return whether `after` differs from `before` only in the length of the lease."""
    kept = {name: getattr(before, name) for name in _TTL_FIELDS}
    return after != before and msgspec.structs.replace(after, **kept) == before


def backoff_us(policy: Policy, tries: int, jitter: float) -> int:
    """Return the delay before the next attempt: doubled each time up to the maximum, then multiplied by `jitter` (0.5–1.5)."""
    exponent = min(max(tries, 1) - 1, 40)
    plain_ms = min(policy.backoff_base_ms * 2**exponent, policy.backoff_max_ms)
    return int(plain_ms * 1_000 * jitter)


LIVENESS_TYPES = frozenset({EventType.HEARTBEAT, EventType.STALLED, EventType.RESUMED})
UNSIGNED_TYPES = frozenset({EventType.ENQUEUED, EventType.CLAIMED, EventType.STARTED})
"""The ledger makes these in bulk. They are not signed one by one: the sealed log protects them."""


def must_be_signed(policy: Policy | None, kind: EventType) -> bool:
    """Return whether an event of this type must be signed under its attempt's policy. None means before the first attempt."""
    if policy is None or policy.signed == "none":
        return False
    return kind in LIVENESS_TYPES if policy.signed == "liveness" else kind not in UNSIGNED_TYPES
