"""What a run is allowed: every number, its default, its limits."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core import policy as policies
from holdfast.core.limits import check_integer
from holdfast.core.restart_policy import MAX_CIRCUIT_BREAKER_FAILURES, MAX_RESTARTS_LIMIT, RestartPolicyConfig
from holdfast.errors import ValidationError

STALL_TIMEOUT_MS = 60_000
"""For a program that has beaten, where nobody has said how long it may be silent."""
_HOUR_MS, _MONTH_MS = 3_600_000, 30 * policies.DAY_MS

COUNTS = {"max_restarts": (0, MAX_RESTARTS_LIMIT), "breaker_failures": (0, MAX_CIRCUIT_BREAKER_FAILURES)}
DURATIONS_MS = {
    "window": (1_000, _MONTH_MS),
    "breaker_window": (100, _MONTH_MS),
    "stall_timeout": (100, policies.DAY_MS),
    "backoff": (0, _HOUR_MS),
    "backoff_max": (0, _HOUR_MS),
    "grace": (0, _HOUR_MS),
}


class RunPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is restarted, and how it is ended."""

    max_restarts: int = 10
    """In any window."""
    window_ms: int = 600_000
    breaker_failures: int = 5
    """So many restarts within the breaker's window, and there is never another."""
    breaker_window_ms: int = 30_000
    stall_timeout_ms: int | None = None
    """How long it may be silent. None: a minute, once it has beaten."""
    backoff_ms: int = 500
    """Before the first restart in a window; doubled for each one after it."""
    backoff_max_ms: int = 30_000
    grace_ms: int = 10_000
    """Between being told to end and being killed."""

    @property
    def config(self) -> RestartPolicyConfig:
        """For the controller. A tick is a millisecond."""
        return RestartPolicyConfig(
            max_restarts=self.max_restarts,
            window_ticks=self.window_ms,
            circuit_breaker_threshold_ticks=self.breaker_window_ms,
            circuit_breaker_max_failures=self.breaker_failures,
            stall_timeout_ticks=self.silence_ms,
        )

    @property
    def silence_ms(self) -> int:
        return STALL_TIMEOUT_MS if self.stall_timeout_ms is None else self.stall_timeout_ms

    def backoff_seconds(self, attempt: int, jitter: float) -> float:
        """Before the restart with this number in its window."""
        plain_ms: int = min(self.backoff_ms << min(attempt - 1, 40), self.backoff_max_ms)
        return plain_ms * jitter / 1_000


def run_policy(fields: Mapping[str, Any]) -> RunPolicy:
    """From the names people write (`max_restarts=3`, `window="10m"`). None leaves a field at its default.

    What has left the window is forgotten, so the breaker's is never longer.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in COUNTS:
            found[name] = check_integer(name, value, *COUNTS[name])
        elif name in DURATIONS_MS:
            found[f"{name}_ms"] = policies.duration_ms(name, value, *DURATIONS_MS[name])
        else:
            raise ValidationError(f"a run's policy has no {name!r:.80}", field="policy")
    longest = found.get("window_ms", RunPolicy().window_ms)
    if found.setdefault("breaker_window_ms", min(RunPolicy().breaker_window_ms, longest)) > longest:
        raise ValidationError("breaker_window must not be longer than window", field="breaker_window")
    return RunPolicy(**found)
