"""Heartbeat receipts, the liveness gate and the restart controller, under the names of their specification."""

from holdfast.core.liveness import (
    MAX_HEARTBEAT_DETAIL_LENGTH,
    MAX_LIVENESS_DENIAL_DETAIL_LENGTH,
    MAX_RUN_ID_LENGTH,
    HealthVerdict,
    LivenessDenialReason,
    LivenessGateDenial,
    LivenessHeartbeatReceiptV1,
    check_liveness_for_progression,
)
from holdfast.core.restart import (
    MAX_CIRCUIT_BREAKER_FAILURES,
    MAX_RESTARTS_LIMIT,
    Allow,
    CircuitBreakerFailuresExceedsLimit,
    Deny,
    MaxRestartsExceedsLimit,
    RestartController,
    RestartDecision,
    RestartPolicyConfig,
    RestartPolicyConfigError,
    TerminalReason,
)

__all__ = [
    "MAX_CIRCUIT_BREAKER_FAILURES",
    "MAX_HEARTBEAT_DETAIL_LENGTH",
    "MAX_LIVENESS_DENIAL_DETAIL_LENGTH",
    "MAX_RESTARTS_LIMIT",
    "MAX_RUN_ID_LENGTH",
    "Allow",
    "CircuitBreakerFailuresExceedsLimit",
    "Deny",
    "HealthVerdict",
    "LivenessDenialReason",
    "LivenessGateDenial",
    "LivenessHeartbeatReceiptV1",
    "MaxRestartsExceedsLimit",
    "RestartController",
    "RestartDecision",
    "RestartPolicyConfig",
    "RestartPolicyConfigError",
    "TerminalReason",
    "check_liveness_for_progression",
]
