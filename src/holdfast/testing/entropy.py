"""Randomness without its effect on time."""

from holdfast.opening import SystemEntropy


class NoJitter(SystemEntropy):
    """Tokens as random as ever, and backoffs that are exactly what the policy says."""

    def jitter(self) -> float:
        return 1.0
