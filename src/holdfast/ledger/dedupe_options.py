"""Check the options of an enqueue that say what its dedupe key does."""

from collections.abc import Mapping
from typing import Any

from holdfast.core import limits
from holdfast.core.policy import duration_ms
from holdfast.core.windows import ON_DUPLICATE
from holdfast.errors import ValidationError

_NEED_KEY = ("dedupe_for", "on_duplicate", "postpone_max")
_NAMES = frozenset({"dedupe", *_NEED_KEY})
_NONE: dict[str, Any] = {"dedupe_forever": False, "dedupe_for_us": 0, "on_duplicate": "keep", "postpone_max_us": 0}


def dedupe_options(given: Mapping[str, Any], delay_us: int) -> dict[str, Any]:
    """Return the fields of the command. `given` has the options that are not None, and `delay_us` is its delay."""
    if _NAMES.isdisjoint(given):
        return _NONE
    dedupe, action = given.get("dedupe", "live"), given.get("on_duplicate", "keep")
    if dedupe not in ("live", "forever"):
        raise ValidationError('dedupe must be "live" or "forever"', field="dedupe")
    if action not in ON_DUPLICATE:
        raise ValidationError('on_duplicate must be "keep", "replace" or "postpone"', field="on_duplicate")
    forever = dedupe == "forever"
    if forever and "dedupe_key" not in given:
        raise ValidationError('dedupe="forever" needs a dedupe_key', field="dedupe")
    for name in _NEED_KEY:
        if name in given and "dedupe_key" not in given:
            raise ValidationError(f"{name} needs a dedupe_key", field=name)
    if forever and "dedupe_for" in given:
        raise ValidationError('give dedupe_for or dedupe="forever", not both', field="dedupe_for")
    if action != "keep" and ("on_dependency_failure" in given or given.get("depends_on")):
        raise ValidationError(f"on_duplicate={action!r} cannot change what the other job depends on", field="on_duplicate")
    low, high = limits.DEDUPE_FOR_MS_MIN, limits.DEDUPE_FOR_MS_MAX
    return {
        "dedupe_forever": forever,
        "dedupe_for_us": duration_ms("dedupe_for", given["dedupe_for"], low, high) * 1_000 if "dedupe_for" in given else 0,
        "on_duplicate": action,
        "postpone_max_us": _postpone_max_us(given, delay_us) if action == "postpone" else _no_postpone(given),
    }


def _no_postpone(given: Mapping[str, Any]) -> int:
    if "postpone_max" in given:
        raise ValidationError('postpone_max needs on_duplicate="postpone"', field="postpone_max")
    return 0


def _postpone_max_us(given: Mapping[str, Any], delay_us: int) -> int:
    """Return how long after its enqueue the job may be postponed: the time given, or the delay times POSTPONE_DELAYS."""
    if given.get("dedupe") == "forever" or "dedupe_for" in given:
        name = "dedupe_for" if "dedupe_for" in given else "dedupe"
        raise ValidationError(
            'on_duplicate="postpone" keeps the last call, and a key that outlasts its job drops calls: give one of them',
            field=name,
        )
    if not delay_us:
        raise ValidationError('on_duplicate="postpone" needs a delay, which each call begins anew', field="delay")
    if "postpone_max" not in given:
        return min(delay_us * limits.POSTPONE_DELAYS, limits.DELAY_US_MAX)
    return duration_ms("postpone_max", given["postpone_max"], delay_us // 1_000, limits.DELAY_US_MAX // 1_000) * 1_000
