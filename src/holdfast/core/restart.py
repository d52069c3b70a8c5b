"""The restart controller: its configuration, its limits and its decisions."""

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from holdfast.core import strict_json
from holdfast.core.limits import check_count
from holdfast.errors import LimitExceeded, ValidationError

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
    """The settings of a controller. The constructor checks that values are u32 or u64, `validate` checks the limits."""

    max_restarts: int
    window_ticks: int
    circuit_breaker_threshold_ticks: int
    circuit_breaker_max_failures: int
    stall_timeout_ticks: int

    def __post_init__(self) -> None:
        strict_json.check_u32("max_restarts", self.max_restarts)
        strict_json.check_u64("window_ticks", self.window_ticks)
        strict_json.check_u64("circuit_breaker_threshold_ticks", self.circuit_breaker_threshold_ticks)
        strict_json.check_u32("circuit_breaker_max_failures", self.circuit_breaker_max_failures)
        strict_json.check_u64("stall_timeout_ticks", self.stall_timeout_ticks)

    def validate(self) -> None:
        """Raise RestartPolicyConfigError if a number is past its limit."""
        if self.max_restarts > MAX_RESTARTS_LIMIT:
            raise MaxRestartsExceedsLimit(self.max_restarts, MAX_RESTARTS_LIMIT)
        if self.circuit_breaker_max_failures > MAX_CIRCUIT_BREAKER_FAILURES:
            raise CircuitBreakerFailuresExceedsLimit(self.circuit_breaker_max_failures, MAX_CIRCUIT_BREAKER_FAILURES)

    def to_json(self) -> str:
        return strict_json.encode_record(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> "RestartPolicyConfig":
        return cls(**strict_json.read_object("policy", text, cls.__struct_fields__))


__all__ = [
    "Allow",
    "Deny",
    "RestartController",
    "RestartDecision",
    "RestartPolicyConfig",
    "RestartPolicyConfigError",
    "TerminalReason",
]


class TerminalReason(StrEnum):
    """Why a run is not started again."""

    CLEAN_EXIT = "clean_exit"
    RESTART_LIMIT_EXCEEDED = "restart_limit_exceeded"
    CIRCUIT_BREAKER_OPEN = "circuit_breaker_open"
    STALL_TIMEOUT = "stall_timeout"
    OPERATOR_SHUTDOWN = "operator_shutdown"
    UNRECOVERABLE_ERROR = "unrecoverable_error"


class RestartDecision(msgspec.Struct, frozen=True):
    """The controller's answer to one restart: `Allow` with the number of the attempt, or `Deny` with the reason."""

    Allow: ClassVar[type["Allow"]]
    Deny: ClassVar[type["Deny"]]

    def to_json(self) -> str:
        """Return `{"allow":{"attempt":1}}` or `{"deny":{"reason":"clean_exit"}}`."""
        return strict_json.encode_record({type(self).__name__.lower(): self})

    @staticmethod
    def from_json(text: str | bytes) -> "RestartDecision":
        """Return the decision in `text`. `{"Allow":…}` and `{"Deny":…}` are read too, and a reason in either spelling."""
        found = strict_json.read_object("decision", text, (), ("allow", "deny", "Allow", "Deny"))
        match [*found.items()]:
            case [("allow" | "Allow", body)]:
                return Allow(**strict_json.check_fields("allow", body, ["attempt"]))
            case [("deny" | "Deny", body)]:
                reason = strict_json.check_fields("deny", body, ["reason"])["reason"]
                return Deny(strict_json.read_choice("reason", reason, TerminalReason))
            case _:
                raise ValidationError("a decision is either an allow or a deny", field="decision")


class Allow(RestartDecision, frozen=True):
    """Start it again. `attempt` counts the restarts in the window, this one included."""

    attempt: int

    def __post_init__(self) -> None:
        strict_json.check_u32("attempt", self.attempt)


class Deny(RestartDecision, frozen=True):
    """Do not start it again, now or later."""

    reason: TerminalReason

    def __post_init__(self) -> None:
        strict_json.check_choice("reason", self.reason, TerminalReason)


RestartDecision.Allow = Allow
RestartDecision.Deny = Deny


class RestartController:
    """Decide about each restart of a run. After the first denial, every restart is denied for the same reason.

    The controller keeps at most as many restarts as its policy allows. It is not thread-safe.
    """

    def __init__(self, config: RestartPolicyConfig) -> None:
        """Raise RestartPolicyConfigError if a number of `config` is past its limit."""
        config.validate()
        self._config = config
        self._restart_ticks: list[int] = []
        self._terminal_reason: TerminalReason | None = None

    @property
    def config(self) -> RestartPolicyConfig:
        return self._config

    @property
    def restart_ticks(self) -> tuple[int, ...]:
        """The ticks of the restarts that are kept."""
        return tuple(self._restart_ticks)

    @property
    def circuit_breaker_open(self) -> bool:
        """Whether the circuit breaker is open. It never closes again."""
        return self._terminal_reason is TerminalReason.CIRCUIT_BREAKER_OPEN

    def terminal_reason(self) -> TerminalReason | None:
        """Return why no restart is allowed any more, or None while restarts may still be allowed."""
        return self._terminal_reason

    def record_restart(self, current_tick: int) -> RestartDecision:
        """Decide whether the run may be started again at `current_tick`. An allowed restart is recorded.

        A restart exactly `window_ticks` or `circuit_breaker_threshold_ticks` ago still counts. So does one with a later tick
        than this one, so that a clock that steps back does not allow extra restarts.
        """
        now = strict_json.check_u64("current_tick", current_tick)
        if self._terminal_reason is not None:
            return Deny(self._terminal_reason)
        config = self._config
        self._restart_ticks = _since(self._restart_ticks, now, config.window_ticks)
        failures = len(_since(self._restart_ticks, now, config.circuit_breaker_threshold_ticks)) + 1
        if failures >= config.circuit_breaker_max_failures:
            return self.record_terminal(TerminalReason.CIRCUIT_BREAKER_OPEN)
        attempt = len(self._restart_ticks) + 1
        if attempt > config.max_restarts:
            return self.record_terminal(TerminalReason.RESTART_LIMIT_EXCEEDED)
        self._restart_ticks.append(now)
        return Allow(attempt)

    def record_terminal(self, reason: TerminalReason) -> RestartDecision:
        """End all restarts. The first recorded reason stays and is the one in the answer."""
        strict_json.check_choice("reason", reason, TerminalReason)
        if self._terminal_reason is None:
            self._terminal_reason = reason
        return Deny(self._terminal_reason)

    def check_stall(self, last_heartbeat_tick: int, current_tick: int) -> bool:
        """Return whether the last heartbeat is more than `stall_timeout_ticks` ago. One in the future is not."""
        last, now = (
            strict_json.check_u64("last_heartbeat_tick", last_heartbeat_tick),
            strict_json.check_u64("current_tick", current_tick),
        )
        return now - last > self._config.stall_timeout_ticks

    def to_json(self) -> str:
        """Return the complete state. A controller that `from_json` makes of it decides every further restart the same way."""
        return strict_json.encode_record(
            {"config": self._config, "restart_ticks": self._restart_ticks, "terminal_reason": self._terminal_reason}
        )

    @classmethod
    def from_json(cls, text: str | bytes, config: RestartPolicyConfig | None = None) -> "RestartController":
        """Return the stored controller. A `config` given here replaces the stored one."""
        found = strict_json.read_object("controller", text, ["config", "restart_ticks", "terminal_reason"])
        fields = strict_json.check_fields("config", found["config"], RestartPolicyConfig.__struct_fields__)
        kept = RestartPolicyConfig(**fields)
        restored = cls(config or kept)
        restored._restart_ticks = _read_ticks(found["restart_ticks"])
        if found["terminal_reason"] is not None:
            restored._terminal_reason = strict_json.read_choice("terminal_reason", found["terminal_reason"], TerminalReason)
        return restored


def _since(ticks: list[int], now: int, span_ticks: int) -> list[int]:
    """Return the `ticks` that are at most `span_ticks` ago."""
    return [tick for tick in ticks if tick >= now - span_ticks]


def _read_ticks(value: Any) -> list[int]:
    if not isinstance(value, list):
        raise ValidationError("restart_ticks must be an array", field="restart_ticks")
    check_count("restart_ticks", len(value), MAX_RESTARTS_LIMIT)
    return [strict_json.check_u64("restart_ticks", tick) for tick in value]
