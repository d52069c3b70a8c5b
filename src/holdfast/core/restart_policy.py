"""The numbers of a restart controller, and what is said where one is too large."""

from typing import ClassVar

import msgspec

from holdfast.core import bounded
from holdfast.errors import LimitExceeded

MAX_RESTARTS_LIMIT = 1_000
MAX_CIRCUIT_BREAKER_FAILURES = 100


class RestartPolicyConfigError(LimitExceeded):
    """A number of the policy is past its limit."""

    field: ClassVar[str]

    def __init__(self, actual: int, limit: int) -> None:
        self.actual = actual
        self.limit = limit
        super().__init__(f"{self.field} is {actual}; the limit is {limit}", field=self.field, actual=actual, limit=limit)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.context == other.context

    def __hash__(self) -> int:
        return hash((self.field, self.actual, self.limit))


class MaxRestartsExceedsLimit(RestartPolicyConfigError):
    field = "max_restarts"


class CircuitBreakerFailuresExceedsLimit(RestartPolicyConfigError):
    field = "circuit_breaker_max_failures"


class RestartPolicyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a controller. Values that are no u32 or u64 are refused when it is made, the limits by `validate`."""

    max_restarts: int
    window_ticks: int
    circuit_breaker_threshold_ticks: int
    circuit_breaker_max_failures: int
    stall_timeout_ticks: int

    def __post_init__(self) -> None:
        bounded.check_u32("max_restarts", self.max_restarts)
        bounded.check_u64("window_ticks", self.window_ticks)
        bounded.check_u64("circuit_breaker_threshold_ticks", self.circuit_breaker_threshold_ticks)
        bounded.check_u32("circuit_breaker_max_failures", self.circuit_breaker_max_failures)
        bounded.check_u64("stall_timeout_ticks", self.stall_timeout_ticks)

    def validate(self) -> None:
        """Raises RestartPolicyConfigError where a number is past its limit."""
        if self.max_restarts > MAX_RESTARTS_LIMIT:
            raise MaxRestartsExceedsLimit(self.max_restarts, MAX_RESTARTS_LIMIT)
        if self.circuit_breaker_max_failures > MAX_CIRCUIT_BREAKER_FAILURES:
            raise CircuitBreakerFailuresExceedsLimit(self.circuit_breaker_max_failures, MAX_CIRCUIT_BREAKER_FAILURES)

    def to_json(self) -> str:
        return bounded.write(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> "RestartPolicyConfig":
        return cls(**bounded.read_object("policy", text, cls.__struct_fields__))
